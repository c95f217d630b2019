------------------------------ MODULE Journal ------------------------------
(***************************************************************************)
(* The journal of a storage node: one file for all partitions of a disk.   *)
(*                                                                         *)
(* A turn writes the changes of some partitions into their segments, which *)
(* stay in the page cache, and all of them as one group into the journal.  *)
(* One sync of the journal acknowledges the turn.  A partition that is     *)
(* alone writes and syncs its own segment instead.  Segments are synced    *)
(* later, by checkpoints; a group is released when nothing depends on it.  *)
(* After a crash the groups are replayed into the segments.                *)
(*                                                                         *)
(* A record is the number of the session that wrote it; a session never    *)
(* writes one id twice with different bytes, so that number stands for     *)
(* the bytes.  `possible` holds, for each place of a segment, every value  *)
(* that the disk may show after a crash: what the last sync made durable   *)
(* and all that was written since.                                         *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Partitions,     \* the partitions of the disk
    MaxId,          \* ids are 1 .. MaxId
    MaxGroups,      \* groups between two starts
    MaxSession,     \* sessions of a partition
    MaxCrashes,
    Bug             \* "none", or the name of a planted mistake

ASSUME MaxId > 0 /\ MaxGroups > 0

VARIABLES
    state,      \* "running", "down" (after a crash) or "stopped" (in order)
    page,       \* page[p]: the log as the process sees it
    possible,   \* possible[p][i]: the values that the disk may hold at i; 0: none
    session,    \* session[p]: the highest session that the process has accepted
    fenceFile,  \* fenceFile[p]: the fence on the disk outside of the journal
    groups,     \* the groups of this life of the journal
    first,      \* the oldest group that is not released
    synced,     \* how many groups are durable: all, or all but the last
    debt,       \* debt[p]: the oldest group that no sync of the segment covers; 0: none
    direct,     \* direct[p]: "no", "written", "synced" (its segment, on its own)
    check,      \* check[p]: the checkpoint's sync of the segment that is under way
    acked,      \* acked[p]: the log that was acknowledged
    told,       \* told[p]: the session that was acknowledged
    foreign,    \* whether a node of the original refuses the directory
    crashes,
    holds       \* whether every start so far found what was acknowledged

vars == <<state, page, possible, session, fenceFile, groups, first, synced, debt, direct, check,
          acked, told, foreign, crashes, holds>>

Ids == 1 .. MaxId
At(log, i) == IF i <= Len(log) THEN log[i] ELSE 0
Min(a, b) == IF a <= b THEN a ELSE b
Max(a, b) == IF a >= b THEN a ELSE b
IsPrefix(a, b) == Len(a) <= Len(b) /\ \A i \in 1 .. Len(a) : a[i] = b[i]

NoCheck == [on |-> FALSE, covers |-> 0, log |-> <<>>, since |-> [i \in Ids |-> {}]]
Clean(log) == [i \in Ids |-> {At(log, i)}]

Init ==
    /\ state = "running"
    /\ page = [p \in Partitions |-> <<>>]
    /\ possible = [p \in Partitions |-> Clean(<<>>)]
    /\ session = [p \in Partitions |-> 1]
    /\ fenceFile = [p \in Partitions |-> 1]
    /\ groups = <<>>
    /\ first = 1
    /\ synced = 0
    /\ debt = [p \in Partitions |-> 0]
    /\ direct = [p \in Partitions |-> "no"]
    /\ check = [p \in Partitions |-> NoCheck]
    /\ acked = page
    /\ told = session
    /\ foreign = FALSE
    /\ crashes = 0
    /\ holds = TRUE

(***************************************************************************)
(* Entries of a group                                                      *)
(***************************************************************************)

Records(i, s) == [kind |-> "records", id |-> i, session |-> s]
Truncated(i, s) == [kind |-> "truncated", id |-> i, session |-> s]
Fenced(s) == [kind |-> "fenced", id |-> 0, session |-> s]
Settled(i, s) == [kind |-> "settled", id |-> i, session |-> s]

\* Whether the journal holds a change of the partition's segment that a replay would write.
InJournal(p) == debt[p] # 0 \/ \E g \in first .. Len(groups) :
    p \in DOMAIN groups[g] /\ groups[g][p].kind \in {"records", "truncated"}

\* What a partition may have for a turn.
Offers(p) ==
    IF direct[p] = "synced" THEN {Settled(Len(page[p]), session[p])}
    ELSE IF direct[p] = "written" THEN {}
    ELSE (IF Len(page[p]) < MaxId THEN {Records(Len(page[p]) + 1, session[p])} ELSE {})
         \cup {Truncated(i, session[p]) : i \in 0 .. Len(page[p]) - 1}
         \cup (IF session[p] < MaxSession THEN {Fenced(session[p] + 1)} ELSE {})

Idle == synced = Len(groups)
Pending(p) == ~Idle /\ p \in DOMAIN groups[Len(groups)]

LogAfter(log, e) ==
    CASE e.kind = "records" -> Append(log, e.session)
      [] e.kind = "truncated" -> SubSeq(log, 1, e.id)
      [] OTHER -> log

Written(p, e) ==    \* the values that the change adds to those which the disk may hold
    [i \in Ids |->
        IF e.kind = "records" /\ i = e.id THEN {e.session}
        ELSE IF e.kind = "truncated" /\ i > e.id THEN {0} ELSE {}]

Journaled(turn) ==  \* what of a turn goes into the group
    LET kept == {p \in DOMAIN turn :
                    /\ ~(Bug = "truncation not journaled" /\ turn[p].kind = "truncated")
                    /\ ~(Bug = "fence in memory only" /\ turn[p].kind = "fenced")}
    IN [p \in kept |-> turn[p]]

Turn ==
    /\ state = "running" /\ Idle /\ Len(groups) < MaxGroups
    /\ \E S \in SUBSET Partitions \ {{}} :
        \E turn \in [S -> UNION {Offers(p) : p \in Partitions}] :
            /\ \A p \in S : turn[p] \in Offers(p)
            /\ LET number == Len(groups) + 1
                   changed == {p \in S : turn[p].kind \in {"records", "truncated"}}
               IN
               /\ page' = [p \in Partitions |-> IF p \in S THEN LogAfter(page[p], turn[p]) ELSE page[p]]
               /\ possible' = [p \in Partitions |->
                    IF p \in S THEN [i \in Ids |-> possible[p][i] \cup Written(p, turn[p])[i]] ELSE possible[p]]
               /\ check' = [p \in Partitions |->
                    IF p \in S /\ check[p].on
                    THEN [check[p] EXCEPT !.since = [i \in Ids |-> @[i] \cup Written(p, turn[p])[i]]]
                    ELSE check[p]]
               /\ session' = [p \in Partitions |->
                    IF p \in S /\ turn[p].kind = "fenced" THEN turn[p].session ELSE session[p]]
               /\ groups' = Append(groups, Journaled(turn))
               /\ debt' = [p \in Partitions |-> IF p \in changed /\ debt[p] = 0 THEN number ELSE debt[p]]
               \* What is cut is promised to nobody from the moment at which the truncation is taken up.
               /\ acked' = [p \in Partitions |->
                    IF p \in S /\ (turn[p].kind = "truncated" \/ Bug = "acknowledged before the sync")
                    THEN SubSeq(page'[p], 1, IF turn[p].kind = "truncated"
                                             THEN Min(turn[p].id, Len(acked[p])) ELSE Len(page'[p]))
                    ELSE acked[p]]
               /\ foreign' = (Bug # "key not inverted before the group")
    /\ UNCHANGED <<state, fenceFile, first, synced, direct, told, crashes, holds>>

SyncJournal ==
    /\ state = "running" /\ ~Idle
    /\ synced' = Len(groups)
    /\ LET answered == {p \in Partitions : direct[p] # "written" /\ (direct[p] = "no" \/ Pending(p))}
       IN /\ acked' = [p \in Partitions |-> IF p \in answered THEN page[p] ELSE acked[p]]
          /\ told' = session
    /\ direct' = [p \in Partitions |-> IF Pending(p) /\ direct[p] = "synced" THEN "no" ELSE direct[p]]
    /\ UNCHANGED <<state, page, possible, session, fenceFile, groups, first, debt, check, foreign, crashes, holds>>

(***************************************************************************)
(* A partition that is alone                                               *)
(***************************************************************************)

DirectWrite(p) ==
    /\ state = "running" /\ direct[p] = "no" /\ ~Pending(p) /\ ~check[p].on
    /\ session[p] = told[p] /\ Len(page[p]) < MaxId
    /\ page' = [page EXCEPT ![p] = Append(@, session[p])]
    /\ possible' = [possible EXCEPT ![p][Len(page[p]) + 1] = @ \cup {session[p]}]
    /\ direct' = [direct EXCEPT ![p] = "written"]
    /\ UNCHANGED <<state, session, fenceFile, groups, first, synced, debt, check, acked, told, foreign, crashes, holds>>

DirectSync(p) ==
    /\ state = "running" /\ direct[p] = "written"
    /\ possible' = [possible EXCEPT ![p] = Clean(page[p])]
    /\ debt' = [debt EXCEPT ![p] = 0]
    /\ IF InJournal(p) /\ Bug # "acknowledged before it is settled"
       THEN direct' = [direct EXCEPT ![p] = "synced"] /\ UNCHANGED acked
       ELSE direct' = [direct EXCEPT ![p] = "no"] /\ acked' = [acked EXCEPT ![p] = page[p]]
    /\ UNCHANGED <<state, page, session, fenceFile, groups, first, synced, check, told, foreign, crashes, holds>>

(***************************************************************************)
(* Checkpoints                                                             *)
(***************************************************************************)

\* The mark of what a sync covers is taken before the sync is called.
CheckBegins(p) ==
    /\ state = "running" /\ debt[p] # 0 /\ ~check[p].on /\ direct[p] = "no"
    /\ check' = [check EXCEPT ![p] = [on |-> TRUE, covers |-> Len(groups), log |-> page[p],
                                      since |-> [i \in Ids |-> {}]]]
    /\ UNCHANGED <<state, page, possible, session, fenceFile, groups, first, synced, debt, direct,
                   acked, told, foreign, crashes, holds>>

CheckEnds(p) ==
    /\ state = "running" /\ check[p].on
    /\ LET covers == IF Bug = "base of what is written" THEN Len(groups) ELSE check[p].covers
           later == {g \in covers + 1 .. Len(groups) :
                        p \in DOMAIN groups[g] /\ groups[g][p].kind \in {"records", "truncated"}}
       IN debt' = [debt EXCEPT ![p] = IF later = {} THEN 0 ELSE CHOOSE g \in later : \A h \in later : g <= h]
    /\ possible' = [possible EXCEPT ![p] = [i \in Ids |-> {At(check[p].log, i)} \cup check[p].since[i]]]
    /\ check' = [check EXCEPT ![p] = NoCheck]
    /\ UNCHANGED <<state, page, session, fenceFile, groups, first, synced, direct, acked, told, foreign, crashes, holds>>

FenceCheckpoint ==
    /\ state = "running" /\ fenceFile # session
    /\ fenceFile' = session
    /\ UNCHANGED <<state, page, possible, session, groups, first, synced, debt, direct, check,
                   acked, told, foreign, crashes, holds>>

Owed(g) ==
    \E p \in DOMAIN groups[g] :
        \/ debt[p] # 0 /\ debt[p] <= g
        \/ groups[g][p].kind = "fenced" /\ fenceFile[p] < groups[g][p].session

Release ==
    /\ state = "running" /\ first <= synced
    /\ Bug = "used again too early" \/ ~Owed(first)
    /\ first' = first + 1
    /\ UNCHANGED <<state, page, possible, session, fenceFile, groups, synced, debt, direct, check,
                   acked, told, foreign, crashes, holds>>

(***************************************************************************)
(* Crash and start                                                         *)
(***************************************************************************)

RECURSIVE Replay(_, _, _)
Replay(content, entries, k) ==
    IF k > Len(entries) THEN content
    ELSE LET e == entries[k]
             next == [i \in Ids |->
                        IF e.kind = "records" /\ i = e.id THEN e.session
                        ELSE IF e.kind = "truncated" /\ i > e.id THEN 0 ELSE content[i]]
         IN Replay(next, entries, k + 1)

RECURSIVE EntriesOf(_, _, _)
EntriesOf(p, g, last) ==
    IF g > last THEN <<>>
    ELSE (IF p \in DOMAIN groups[g] THEN <<groups[g][p]>> ELSE <<>>) \o EntriesOf(p, g + 1, last)

\* The entries of the segment behind the last `settled`.
Behind(entries) ==
    LET marks == {k \in 1 .. Len(entries) : entries[k].kind = "settled"}
    IN IF marks = {} \/ Bug = "settled ignored" THEN entries
       ELSE SubSeq(entries, 1 + CHOOSE k \in marks : \A h \in marks : h <= k, Len(entries))

\* `settled` speaks of the segment; a fence before it still stands.
FenceIn(entries) ==
    LET counted == IF Bug = "settled forgets fences" THEN Behind(entries) ELSE entries
        fences == {counted[k].session : k \in {k \in 1 .. Len(counted) : counted[k].kind = "fenced"}}
    IN IF fences = {} THEN 0 ELSE CHOOSE s \in fences : \A t \in fences : t <= s

RECURSIVE PrefixOf(_, _)
PrefixOf(content, i) ==
    IF i > MaxId \/ content[i] = 0 THEN <<>> ELSE <<content[i]>> \o PrefixOf(content, i + 1)

Disks == {disk \in [Partitions -> [Ids -> 0 .. MaxSession]] : \A p \in Partitions : \A i \in Ids : disk[p][i] \in possible[p][i]}

\* A start finds what was acknowledged, or that and what was under way, and nothing else.
Good(p, log, fence) ==
    /\ IsPrefix(acked[p], log)
    /\ IsPrefix(log, page[p]) \/ IsPrefix(page[p], log)
    /\ Len(log) <= Max(Len(page[p]), Len(acked[p])) \/ Pending(p)
    /\ fence >= told[p]

Start(disk, last, replayed) ==
    LET entries == [p \in Partitions |-> IF replayed THEN EntriesOf(p, first, last) ELSE <<>>]
        log == [p \in Partitions |-> PrefixOf(Replay(disk[p], Behind(entries[p]), 1), 1)]
        fence == [p \in Partitions |-> Max(fenceFile[p], FenceIn(entries[p]))]
    IN /\ holds' = (holds /\ \A p \in Partitions : Good(p, log[p], fence[p]))
       /\ state' = "running"
       /\ page' = log /\ acked' = log
       /\ possible' = [p \in Partitions |-> Clean(log[p])]
       /\ session' = fence /\ told' = fence /\ fenceFile' = fence
       /\ groups' = <<>> /\ first' = 1 /\ synced' = 0
       /\ debt' = [p \in Partitions |-> 0]
       /\ direct' = [p \in Partitions |-> "no"]
       /\ check' = [p \in Partitions |-> NoCheck]

Crash ==
    /\ state = "running" /\ crashes < MaxCrashes
    /\ state' = "down" /\ crashes' = crashes + 1
    /\ UNCHANGED <<page, possible, session, fenceFile, groups, first, synced, debt, direct, check,
                   acked, told, foreign, holds>>

\* The last group may be torn, or whole although nobody was told.
StartAfterCrash ==
    /\ state = "down"
    /\ \E disk \in Disks : \E last \in {synced, Len(groups)} : Start(disk, last, TRUE)
    /\ foreign' = FALSE
    /\ UNCHANGED crashes

\* A node of the original knows no journal, and looks at the cluster key.  It is not asked about fences of
\* sessions, which it forgets itself.
StartOfOriginal ==
    /\ state \in {"down", "stopped"} /\ ~foreign
    /\ \E disk \in Disks :
        holds' = (holds /\ \A p \in Partitions : IsPrefix(acked[p], PrefixOf(disk[p], 1)))
    /\ UNCHANGED <<state, page, possible, session, fenceFile, groups, first, synced, debt, direct, check,
                   acked, told, foreign, crashes>>

\* A stop in order, or a drain: all is synced, then the key is written back.
Stop ==
    /\ state = "running" /\ Idle /\ \A p \in Partitions : direct[p] = "no" /\ ~check[p].on
    /\ \/ Bug = "drained too little"
       \/ \A g \in first .. Len(groups) : ~Owed(g)
    /\ Len(groups) > 0
    /\ state' = "stopped" /\ foreign' = FALSE
    /\ groups' = <<>> /\ first' = 1 /\ synced' = 0
    /\ UNCHANGED <<page, possible, session, fenceFile, debt, direct, check, acked, told, crashes, holds>>

StartAfterStop ==
    /\ state = "stopped"
    /\ \E disk \in Disks : Start(disk, 0, TRUE)
    /\ UNCHANGED <<foreign, crashes>>

Next ==
    \/ Turn \/ SyncJournal \/ FenceCheckpoint \/ Release
    \/ Crash \/ StartAfterCrash \/ StartOfOriginal \/ Stop \/ StartAfterStop
    \/ \E p \in Partitions : DirectWrite(p) \/ DirectSync(p) \/ CheckBegins(p) \/ CheckEnds(p)

Spec == Init /\ [][Next]_vars

AcknowledgedStays == holds

=============================================================================
