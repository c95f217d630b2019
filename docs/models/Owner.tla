------------------------------- MODULE Owner -------------------------------
(***************************************************************************)
(* What the owner of a partition promises to clients beyond a commit: the  *)
(* fence of a write session, and a confirmed mark.                         *)
(*                                                                         *)
(* A fence is answered with a position and a number.  No record behind     *)
(* that position carries an older number.  A confirmed mark lies nowhere   *)
(* below what any owner had told as committed when the mark was asked for. *)
(*                                                                         *)
(* Store sessions are told in StoreSession; here a session opens in one    *)
(* step, with the log of the replicas that have joined last among a        *)
(* majority with raised fences.                                            *)
(*                                                                         *)
(* A record is [session, number]: the store session in which it was        *)
(* written, and the write session that its client gave.                    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Servers,
    Replicas,
    MaxSession,
    MaxId,
    MaxQuestions,
    Bug             \* "none", or the name of a planted mistake

VARIABLES
    newest,         \* metadata: the newest store session
    owner,          \* owner[s]: the server that has begun store session s
    phase,          \* phase[s]: "none", "recovering", "open", "closed"
    number,         \* number[s]: the write session that is in force in store session s
    fences,         \* fences[s]: whether a client's fence has begun store session s
    early,          \* early[s]: the mark of the store session before a fence
    fence, log,     \* at a storage
    joined,         \* at a storage: the store session that it has joined last
    sent, mark,     \* sent[s], mark[s]: the log of the owner, and the part that it knows to be committed
    acked,          \* acked[s][r]: up to where the storage has acknowledged to the session
    committed,      \* what any owner has told any client; no owner can read it
    told,           \* the fences that were answered: [position, number]
    question,       \* about a confirmed mark: [session, floor, mark, answers]; session 0: none
    questions,      \* how many were asked
    agrees          \* whether everything that was told as committed agrees, and every confirmed mark was high enough

sessions == <<newest, owner, phase, number, fences, early>>
storage == <<fence, log, joined>>
appends == <<sent, mark, acked>>
asking == <<question, questions>>
vars == <<sessions, storage, appends, committed, told, asking, agrees>>

Sessions == 1 .. MaxSession
Quorum == Cardinality(Replicas) \div 2 + 1
Cut(seq, n) == SubSeq(seq, 1, n)
IsPrefix(a, b) == Len(a) <= Len(b) /\ \A i \in 1 .. Len(a) : a[i] = b[i]
Nobody == "nobody"
NoQuestion == [session |-> 0, floor |-> 0, mark |-> 0, answers |-> {}]

\* The first session is open, with all replicas.
Init ==
    /\ newest = 1
    /\ \E v \in Servers : owner = [s \in Sessions |-> IF s = 1 THEN v ELSE Nobody]
    /\ phase = [s \in Sessions |-> IF s = 1 THEN "open" ELSE "none"]
    /\ number = [s \in Sessions |-> IF s = 1 THEN 2 ELSE 0]
    /\ fences = [s \in Sessions |-> FALSE]
    /\ early = [s \in Sessions |-> 0]
    /\ fence = [r \in Replicas |-> 1]
    /\ log = [r \in Replicas |-> <<>>]
    /\ joined = [r \in Replicas |-> 1]
    /\ sent = [s \in Sessions |-> <<>>]
    /\ mark = [s \in Sessions |-> 0]
    /\ acked = [s \in Sessions |-> [r \in Replicas |-> 0]]
    /\ committed = <<>>
    /\ told = {}
    /\ question = NoQuestion
    /\ questions = 0
    /\ agrees = TRUE

(***************************************************************************)
(* Sessions                                                                *)
(***************************************************************************)

Begun == {s \in Sessions : phase[s] # "none"}
Own(v) == {s \in Begun : owner[s] = v}
Last(v) == CHOOSE s \in Own(v) : \A t \in Own(v) : t <= s

\* The write session goes on if the server itself has begun the newest store session, and remembers.
MayContinue(v) == Own(v) # {} /\ (Last(v) = newest \/ Bug = "keeps its number over a foreign session")

Begin(v, continues, fencing) ==
    LET s == newest + 1 IN
    /\ newest < MaxSession
    /\ continues => MayContinue(v) /\ ~fencing
    /\ fencing => Own(v) # {} /\ phase[Last(v)] = "open"
    /\ newest' = s
    /\ owner' = [owner EXCEPT ![s] = v]
    /\ phase' = [t \in Sessions |-> IF t = s THEN "recovering" ELSE IF t \in Own(v) THEN "closed" ELSE phase[t]]
    /\ number' = [number EXCEPT ![s] = IF continues THEN number[Last(v)] ELSE s + 1]
    /\ fences' = [fences EXCEPT ![s] = fencing]
    /\ early' = [early EXCEPT ![s] = IF fencing /\ Bug = "position from before the new session" THEN mark[Last(v)] ELSE 0]
    \* Of a closed session nothing is used again.
    /\ sent' = [t \in Sessions |-> IF t \in Own(v) THEN <<>> ELSE sent[t]]
    /\ mark' = [t \in Sessions |-> IF t \in Own(v) THEN 0 ELSE mark[t]]
    /\ acked' = [t \in Sessions |-> IF t \in Own(v) THEN [r \in Replicas |-> 0] ELSE acked[t]]
    /\ UNCHANGED <<storage, committed, told, asking, agrees>>

Raise(s, r) ==
    /\ phase[s] = "recovering" /\ fence[r] < s
    /\ fence' = [fence EXCEPT ![r] = s]
    /\ UNCHANGED <<sessions, log, joined, appends, committed, told, asking, agrees>>

Newer(q, r) == joined[q] > joined[r] \/ (joined[q] = joined[r] /\ Len(log[q]) > Len(log[r]))

\* Open writes the metadata, and succeeds only for the newest session.
Open(s) ==
    LET raised == {r \in Replicas : fence[r] = s}
        start == log[CHOOSE r \in raised : \A q \in raised : ~Newer(q, r)]
    IN
    /\ phase[s] = "recovering" /\ newest = s /\ Cardinality(raised) >= Quorum
    /\ phase' = [phase EXCEPT ![s] = "open"]
    /\ log' = [r \in Replicas |-> IF r \in raised THEN start ELSE log[r]]
    /\ joined' = [r \in Replicas |-> IF r \in raised THEN s ELSE joined[r]]
    /\ sent' = [sent EXCEPT ![s] = start]
    /\ mark' = [mark EXCEPT ![s] = Len(start)]
    /\ acked' = [acked EXCEPT ![s] = [r \in Replicas |-> IF r \in raised THEN Len(start) ELSE 0]]
    /\ agrees' = (agrees /\ IsPrefix(committed, start))
    /\ committed' = start
    /\ told' = IF ~fences[s] THEN told
               ELSE told \cup {[position |-> IF Bug = "position from before the new session" THEN early[s] ELSE Len(start),
                                number |-> number[s]]}
    /\ fences' = [fences EXCEPT ![s] = FALSE]
    /\ early' = [early EXCEPT ![s] = 0]
    /\ UNCHANGED <<newest, owner, number, fence, asking>>

\* A replica that was away gets what is committed.
Join(s, r) ==
    /\ phase[s] = "open" /\ fence[r] < s
    /\ fence' = [fence EXCEPT ![r] = s]
    /\ joined' = [joined EXCEPT ![r] = s]
    /\ log' = [log EXCEPT ![r] = Cut(sent[s], mark[s])]
    /\ acked' = [acked EXCEPT ![s][r] = mark[s]]
    /\ UNCHANGED <<sessions, sent, mark, committed, told, asking, agrees>>

FenceInMemory(s) ==
    /\ Bug = "fence in memory only" /\ phase[s] = "open" /\ number[s] <= MaxSession
    /\ number' = [number EXCEPT ![s] = @ + 1]
    /\ told' = told \cup {[position |-> mark[s], number |-> number[s] + 1]}
    /\ UNCHANGED <<newest, owner, phase, fences, early, storage, appends, committed, asking, agrees>>

(***************************************************************************)
(* Appends                                                                 *)
(***************************************************************************)

\* Clients send whatever number they were given once, for as long as they live.
Submit(s, n) ==
    /\ phase[s] = "open" /\ Len(sent[s]) < MaxId
    /\ n = number[s] \/ Bug = "numbers not compared"
    /\ sent' = [sent EXCEPT ![s] = Append(@, [session |-> s, number |-> n])]
    /\ UNCHANGED <<sessions, storage, mark, acked, committed, told, asking, agrees>>

Write(s, r) ==
    /\ phase[s] = "open" /\ fence[r] = s /\ joined[r] = s /\ Len(log[r]) < Len(sent[s])
    /\ log' = [log EXCEPT ![r] = Append(@, sent[s][Len(@) + 1])]
    /\ acked' = [acked EXCEPT ![s][r] = Len(log[r]) + 1]
    /\ UNCHANGED <<sessions, fence, joined, sent, mark, committed, told, asking, agrees>>

Commit(s) ==
    /\ phase[s] = "open" /\ mark[s] < Len(sent[s])
    /\ LET n == mark[s] + 1
           new == Cut(sent[s], n)
       IN /\ Cardinality({r \in Replicas : acked[s][r] >= n}) >= Quorum
          /\ mark' = [mark EXCEPT ![s] = n]
          /\ agrees' = (agrees /\ (IsPrefix(new, committed) \/ IsPrefix(committed, new)))
          /\ committed' = IF Len(new) > Len(committed) THEN new ELSE committed
    /\ UNCHANGED <<sessions, storage, sent, acked, told, asking>>

(***************************************************************************)
(* Confirmed marks                                                         *)
(***************************************************************************)

Ask(s) ==
    /\ phase[s] = "open" /\ question.session = 0 /\ questions < MaxQuestions
    /\ question' = [session |-> s, floor |-> Len(committed), mark |-> mark[s], answers |-> {}]
    /\ questions' = questions + 1
    /\ UNCHANGED <<sessions, storage, appends, committed, told, agrees>>

\* Only a storage at which the session is still the newest answers.
Answer(r) ==
    /\ question.session > 0 /\ r \notin question.answers /\ joined[r] >= question.session
    /\ fence[r] = question.session \/ Bug = "answers behind a raised fence"
    /\ question' = [question EXCEPT !.answers = @ \cup {r}]
    /\ UNCHANGED <<sessions, storage, appends, committed, told, questions, agrees>>

ShareAnEarlierRound ==
    /\ Bug = "an earlier round is shared" /\ question.session > 0
    /\ question' = [question EXCEPT !.floor = Len(committed)]
    /\ UNCHANGED <<sessions, storage, appends, committed, told, questions, agrees>>

Confirm ==
    /\ question.session > 0
    /\ Cardinality(question.answers) >= IF Bug = "a minority confirms" THEN Quorum - 1 ELSE Quorum
    /\ agrees' = (agrees /\ question.mark >= question.floor)
    /\ question' = NoQuestion
    /\ UNCHANGED <<sessions, storage, appends, committed, told, questions>>

Next ==
    \/ \E v \in Servers, continues, fencing \in BOOLEAN : Begin(v, continues, fencing)
    \/ \E s \in Sessions : Open(s) \/ FenceInMemory(s) \/ Commit(s) \/ Ask(s)
    \/ \E s \in Sessions, n \in 2 .. MaxSession + 1 : Submit(s, n)
    \/ \E s \in Sessions, r \in Replicas : Raise(s, r) \/ Join(s, r) \/ Write(s, r)
    \/ \E r \in Replicas : Answer(r)
    \/ ShareAnEarlierRound \/ Confirm

Spec == Init /\ [][Next]_vars

NumbersGrow == \A s, t \in Begun : s < t => number[s] <= number[t]
FencesHold == \A f \in told : \A i \in f.position + 1 .. Len(committed) : committed[i].number >= f.number
OneOwner == \A s, t \in Begun : number[s] = number[t] => owner[s] = owner[t]

PromisesHold == agrees /\ NumbersGrow /\ FencesHold /\ OneOwner
Permuted(set) == {f \in [set -> set] : \A a, b \in set : a # b => f[a] # f[b]}
Symmetry == {f @@ g : f \in Permuted(Replicas), g \in Permuted(Servers)}

=============================================================================
