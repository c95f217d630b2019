---------------------------- MODULE StoreSession ----------------------------
(***************************************************************************)
(* The sessions in which the owner of a partition writes to its replicas.  *)
(*                                                                         *)
(* A session takes the next number in the metadata, raises the fence of    *)
(* the storages to that number, finds out what could have been committed,  *)
(* brings a quorum of the replicas to that mark, records them as its       *)
(* members, and opens.  Owners of earlier sessions do not know of all this *)
(* and go on until a storage refuses them.                                 *)
(*                                                                         *)
(* A record is the number of the session that wrote it.  `committed` is    *)
(* what any owner has told any client; no owner can read it.               *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Replicas,
    Behind,         \* replicas that missed the session which is open at first
    Forgetful,      \* storages of the original, which forget a fence in a restart
    MaxSession,
    MaxId,
    MaxRestarts,
    Bug             \* "none", or the name of a planted mistake

VARIABLES
    number,         \* metadata: the newest session
    state,          \* metadata: state[r] = [session, closing]; session 0: never a member
    log, fence,     \* at a storage
    own, low,       \* at a storage: the session that it has persisted, and its low-water mark
    writing,        \* writing[r]: [session, id] of a write without an answer yet; session 0: none
    phase,          \* phase[s]: "none", "recovering", "decided", "open"
    step,           \* step[s][r]: where a replica is on its way into a session
    mark,           \* mark[s][r]: up to where the session knows it to hold the log
    votes, intact,  \* votes[s], intact[s]: sets of replicas
    decided,        \* decided[s]
    sent,           \* sent[s]: the log of the session's owner
    acked,          \* acked[s][r]: up to where the storage has acknowledged to the session
    committed,
    restarts,
    agrees          \* whether everything that was told as committed agrees

vars == <<number, state, log, fence, own, low, writing, phase, step, mark, votes, intact, decided, sent,
          acked, committed, restarts, agrees>>
storage == <<log, fence, own, low, writing>>
metadata == <<number, state>>
told == <<committed, agrees>>

Sessions == 1 .. MaxSession
Open == MaxId + 1       \* "unresolved": no closing mark
Quorum == Cardinality(Replicas) \div 2 + 1
Min(a, b) == IF a <= b THEN a ELSE b
Cut(seq, n) == SubSeq(seq, 1, Min(n, Len(seq)))
IsPrefix(a, b) == Len(a) <= Len(b) /\ \A i \in 1 .. Len(a) : a[i] = b[i]

First == 2      \* an earlier session has ended before it held anything

Init ==
    /\ number = First
    /\ state = [r \in Replicas |-> IF r \in Behind THEN [session |-> 1, closing |-> 0]
                                  ELSE [session |-> First, closing |-> Open]]
    /\ log = [r \in Replicas |-> <<>>]
    /\ own = [r \in Replicas |-> IF r \in Behind THEN 1 ELSE First]
    /\ fence = own
    /\ low = [r \in Replicas |-> 0]
    /\ writing = [r \in Replicas |-> [session |-> 0, id |-> 0]]
    /\ phase = [s \in Sessions |-> IF s = First THEN "open" ELSE "none"]
    /\ step = [s \in Sessions |-> [r \in Replicas |-> IF s = First /\ r \notin Behind THEN "joined" ELSE "absent"]]
    /\ mark = [s \in Sessions |-> [r \in Replicas |-> 0]]
    /\ votes = [s \in Sessions |-> {}]
    /\ intact = [s \in Sessions |-> {}]
    /\ decided = [s \in Sessions |-> 0]
    /\ sent = [s \in Sessions |-> <<>>]
    /\ acked = [s \in Sessions |-> [r \in Replicas |-> 0]]
    /\ committed = <<>>
    /\ restarts = 0
    /\ agrees = TRUE

Begin ==
    /\ number < MaxSession
    /\ number' = number + 1
    /\ phase' = [phase EXCEPT ![number + 1] = "recovering"]
    /\ UNCHANGED <<state, storage, step, mark, votes, intact, decided, sent, acked, told, restarts>>

(***************************************************************************)
(* A replica on its way into the session                                   *)
(***************************************************************************)

\* The fence rises when the question comes; the answer waits until the write in flight has ended.
Ask(s, r) ==
    /\ phase[s] # "none" /\ step[s][r] = "absent" /\ fence[r] <= s
    /\ fence' = [fence EXCEPT ![r] = s]
    /\ step' = [step EXCEPT ![s][r] = "asked"]
    /\ UNCHANGED <<metadata, log, own, low, writing, phase, mark, votes, intact, decided, sent, acked, told, restarts>>

Answer(s, r) ==
    /\ step[s][r] = "asked" /\ fence[r] = s
    /\ writing[r].session = 0 \/ Bug = "fence checked once, answers beside a write"
    /\ step' = [step EXCEPT ![s][r] = "verifying"]
    /\ UNCHANGED <<metadata, storage, phase, mark, votes, intact, decided, sent, acked, told, restarts>>

\* A write of the metadata succeeds only for the newest session: nothing is changed on a storage before that.
Verify(s) ==
    /\ phase[s] # "none"
    /\ number = s \/ Bug = "changes without the metadata"
    /\ \E r \in Replicas : step[s][r] = "verifying"
    /\ step' = [step EXCEPT ![s] = [r \in Replicas |-> IF @[r] = "verifying" THEN "verified" ELSE @[r]]]
    /\ UNCHANGED <<metadata, storage, phase, mark, votes, intact, decided, sent, acked, told, restarts>>

Inspect(s, r) ==
    /\ step[s][r] = "verified" /\ fence[r] = s
    /\ LET known == state[r]
           member == known.session = s /\ known.closing = Open
           whole == own[r] >= known.session
           elects == known.session > 0 /\ known.closing = Open /\ whole
           published == Len(log[r]) - (IF writing[r].session > 0 THEN 1 ELSE 0)
           trusted == IF Bug = "trusts every copy" \/ member \/ elects THEN published
                      ELSE IF ~whole THEN low[r]
                      ELSE IF known.session = 0 THEN Min(low[r], known.closing)
                      ELSE known.closing
       IN /\ member => own[r] = s     \* else the session ends
          /\ log' = [log EXCEPT ![r] = Cut(@, trusted)]
          /\ mark' = [mark EXCEPT ![s][r] = Len(log'[r])]
          /\ votes' = [votes EXCEPT ![s] = IF elects /\ ~member THEN @ \cup {r} ELSE @ \ {r}]
          /\ intact' = [intact EXCEPT ![s] = IF whole THEN @ \cup {r} ELSE @ \ {r}]
          /\ step' = [step EXCEPT ![s][r] = IF member THEN "joined" ELSE "known"]
          /\ acked' = IF member THEN [acked EXCEPT ![s][r] = Len(log'[r])] ELSE acked
    /\ UNCHANGED <<metadata, fence, own, low, writing, phase, decided, sent, told, restarts>>

Known(s) == {r \in Replicas : step[s][r] = "known"}

\* The highest mark of a majority, unless a higher one could have been committed with replicas that are unknown.
Decisions(s) ==
    LET unknown == Cardinality(Replicas) - Cardinality(Known(s) \cap intact[s])
        Support(m) == Cardinality({r \in Known(s) : mark[s][r] >= m})
        Possible(m) == Cardinality({r \in Known(s) \cap intact[s] : mark[s][r] >= m}) + unknown
        voters == Known(s) \cap votes[s]
        low_ == IF voters = {} THEN 0 ELSE
                CHOOSE m \in {mark[s][r] : r \in voters} : \A r \in voters : m <= mark[s][r]
        marks == {mark[s][r] : r \in Known(s)}
    IN IF Bug = "a minority decides" THEN marks
       ELSE IF voters = {} \/ unknown >= Quorum THEN {}
       ELSE {m \in marks : /\ m >= low_ /\ Support(m) >= Quorum
                           /\ \A n \in marks : n > m => Support(n) < Quorum /\ Possible(n) < Quorum}

\* A mark that rests on copies which the next recovery would cut off is recorded in the same step.
Decide(s) ==
    /\ phase[s] = "recovering"
    /\ \E m \in Decisions(s) :
        LET support == {r \in Known(s) \cap intact[s] : mark[s][r] >= m}
            lasting == {r \in support : state[r].closing = Open \/ (state[r].session > 0 /\ state[r].closing >= m)}
        IN /\ decided' = [decided EXCEPT ![s] = m]
          /\ state' = IF Cardinality(lasting) >= Quorum \/ Bug = "copies not recorded" THEN state
                       ELSE [r \in Replicas |->
                                IF r \in support \ lasting /\ own[r] > 0
                                THEN [session |-> IF state[r].session = 0 THEN own[r] ELSE state[r].session, closing |-> m]
                                ELSE state[r]]
    /\ state' = state \/ number = s    \* a compare-and-set
    /\ phase' = [phase EXCEPT ![s] = "decided"]
    /\ UNCHANGED <<number, storage, step, mark, votes, intact, sent, acked, told, restarts>>

Goal(s) == IF phase[s] = "recovering" THEN MaxId ELSE decided[s]

Copy(s, r) ==
    /\ step[s][r] = "known" /\ fence[r] = s /\ mark[s][r] < Goal(s)
    /\ \E q \in Replicas :
        /\ step[s][q] \in {"known", "aligned", "marked", "joined"} /\ mark[s][q] > mark[s][r]
        /\ Len(log[q]) > mark[s][r]
        /\ log' = [log EXCEPT ![r] = Append(@, log[q][mark[s][r] + 1])]
    /\ mark' = [mark EXCEPT ![s][r] = @ + 1]
    /\ UNCHANGED <<metadata, fence, own, low, writing, phase, step, votes, intact, decided, sent, acked, told, restarts>>

Align(s, r) ==
    /\ step[s][r] = "known" /\ fence[r] = s /\ phase[s] \in {"decided", "open"} /\ mark[s][r] >= decided[s]
    /\ log' = IF Bug = "joins without a cut" THEN log ELSE [log EXCEPT ![r] = Cut(@, decided[s])]
    /\ mark' = [mark EXCEPT ![s][r] = decided[s]]
    /\ step' = [step EXCEPT ![s][r] = "aligned"]
    /\ agrees' = (agrees /\ low[r] <= decided[s])  \* else the storage would refuse, in every session
    /\ UNCHANGED <<metadata, fence, own, low, writing, phase, votes, intact, decided, sent, acked, committed, restarts>>

SetLow(s, r) ==
    /\ step[s][r] = "aligned" /\ fence[r] = s
    /\ own' = [own EXCEPT ![r] = s]
    /\ low' = [low EXCEPT ![r] = decided[s]]
    /\ step' = [step EXCEPT ![s][r] = "marked"]
    /\ UNCHANGED <<metadata, log, fence, writing, phase, mark, votes, intact, decided, sent, acked, told, restarts>>

WriteMembers(s) ==
    LET members == {r \in Replicas : step[s][r] \in {"marked", "joined"}}
        opens == phase[s] = "decided"
    IN
    /\ phase[s] \in {"decided", "open"} /\ \E r \in Replicas : step[s][r] = "marked"
    /\ Cardinality(members) >= Quorum
    /\ number = s \/ Bug = "opens before the metadata are written"
    /\ state' = IF number # s THEN state
                ELSE [r \in Replicas |->
                        IF r \in members THEN [session |-> s, closing |-> Open]
                        ELSE IF state[r].session < s /\ state[r].closing = Open
                        THEN [session |-> state[r].session, closing |-> decided[s]] ELSE state[r]]
    /\ step' = [step EXCEPT ![s] = [r \in Replicas |-> IF @[r] = "marked" THEN "joined" ELSE @[r]]]
    /\ acked' = [acked EXCEPT ![s] = [r \in Replicas |-> IF step[s][r] = "marked" THEN decided[s] ELSE @[r]]]
    /\ phase' = [phase EXCEPT ![s] = "open"]
    /\ IF opens
       THEN LET start == Cut(log[CHOOSE r \in members : TRUE], decided[s])
            IN /\ sent' = [sent EXCEPT ![s] = start]
               /\ agrees' = (agrees /\ IsPrefix(committed, start))
               /\ committed' = IF Len(start) > Len(committed) THEN start ELSE committed
       ELSE UNCHANGED <<sent, told>>
    /\ UNCHANGED <<number, storage, mark, votes, intact, decided, restarts>>

(***************************************************************************)
(* Appends                                                                 *)
(***************************************************************************)

Submit(s) ==
    /\ phase[s] = "open" /\ Len(sent[s]) < MaxId
    /\ sent' = [sent EXCEPT ![s] = Append(@, s)]
    /\ UNCHANGED <<metadata, storage, phase, step, mark, votes, intact, decided, acked, told, restarts>>

Write(s, r) ==
    /\ phase[s] = "open" /\ step[s][r] = "joined" /\ fence[r] = s /\ writing[r].session = 0
    /\ Len(log[r]) < Len(sent[s])
    /\ log' = [log EXCEPT ![r] = Append(@, sent[s][Len(@) + 1])]
    /\ writing' = [writing EXCEPT ![r] = [session |-> s, id |-> Len(log[r]) + 1]]
    /\ UNCHANGED <<metadata, fence, own, low, phase, step, mark, votes, intact, decided, sent, acked, told, restarts>>

\* The session of a request is compared again when the sync has ended.
Acknowledge(r) ==
    LET w == writing[r] IN
    /\ w.session > 0
    /\ acked' = IF fence[r] = w.session \/ Bug = "fence checked once, answers beside a write"
                THEN [acked EXCEPT ![w.session][r] = w.id] ELSE acked
    /\ writing' = [writing EXCEPT ![r] = [session |-> 0, id |-> 0]]
    /\ UNCHANGED <<metadata, log, fence, own, low, phase, step, mark, votes, intact, decided, sent, told, restarts>>

Commit(s) ==
    /\ phase[s] = "open"
    /\ \E n \in 1 .. Len(sent[s]) :
        /\ Cardinality({r \in Replicas : acked[s][r] >= n}) >= Quorum
        /\ LET new == Cut(sent[s], n)
           IN /\ Len(new) > Len(committed) \/ ~IsPrefix(new, committed)
              /\ agrees' = (agrees /\ (IsPrefix(new, committed) \/ IsPrefix(committed, new)))
              /\ committed' = IF Len(new) > Len(committed) THEN new ELSE committed
    /\ UNCHANGED <<metadata, storage, phase, step, mark, votes, intact, decided, sent, acked, restarts>>

\* Connections break; a write without an answer may be lost.
Restart(r) ==
    /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ fence' = IF r \in Forgetful THEN [fence EXCEPT ![r] = own[r]] ELSE fence
    /\ \E kept \in IF writing[r].session = 0 THEN {Len(log[r])} ELSE {Len(log[r]), Len(log[r]) - 1} :
        log' = [log EXCEPT ![r] = Cut(@, kept)]
    /\ writing' = [writing EXCEPT ![r] = [session |-> 0, id |-> 0]]
    /\ step' = [s \in Sessions |-> [step[s] EXCEPT ![r] = "absent"]]
    /\ UNCHANGED <<metadata, own, low, phase, mark, votes, intact, decided, sent, acked, told>>

Next ==
    \/ Begin
    \/ \E s \in Sessions : Verify(s) \/ Decide(s) \/ WriteMembers(s) \/ Submit(s) \/ Commit(s)
    \/ \E s \in Sessions, r \in Replicas :
        Ask(s, r) \/ Answer(s, r) \/ Inspect(s, r) \/ Copy(s, r) \/ Align(s, r) \/ SetLow(s, r) \/ Write(s, r)
    \/ \E r \in Replicas : Acknowledge(r) \/ Restart(r)

Spec == Init /\ [][Next]_vars

CommittedStays == agrees
Symmetry == {f \in [Replicas -> Replicas] :
    /\ \A a, b \in Replicas : a # b => f[a] # f[b]
    /\ \A r \in Behind : f[r] = r}

=============================================================================
