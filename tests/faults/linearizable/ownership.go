package main

import "fmt"

// Who owns a partition for a group, and how far the group is in it.
type owned struct {
	store     int   // where the group is kept: the second one after a promotion
	seq       int64 // of the last fact of the partition
	epoch     int64
	lineage   int64
	owner     string // an incarnation; nobody: ""
	position  int64
	delivered int64 // everything below may have been given to somebody
	planned   int64 // by the owner, in its lineage; or by the last one, while nobody owns it
	finished  int64 // the same
	looked    int64 // the fact whose decider has looked
	fresh     bool  // the owner has planned nothing since it was granted the partition
}

type holder struct {
	seq                   int64
	instance, incarnation string
}

// The facts of a control table are numbered, so the order of the commits is given. What is looked for is a moment for each, and for
// each acknowledgement, plan and delivery between them, that explains what everybody saw.
func ownership(ops []*operation) register {
	holders := map[int64]holder{}
	for _, op := range ops {
		for _, c := range op.Changes {
			if _, twice := holders[c.Epoch]; c.Kind == "Granted" && !twice {
				holders[c.Epoch] = holder{op.Seq, c.Instance, c.Incarnation}
			}
		}
	}
	step := func(from state, op *operation) (state, string) {
		s, ok := from.(owned)
		if !ok {
			return from, "no state of an ownership"
		}
		switch op.Op {
		case "look":
			return looks(s, op)
		case "commit":
			return commits(s, op)
		case "acknowledge":
			return acknowledges(s, op, holders)
		case "deliver":
			return s, delivers(s, op, holders)
		case "finish":
			if op.Store == s.store && s.lineage <= op.Epoch && op.Epoch <= s.epoch {
				s.finished = max(s.finished, op.End)
			}
			return s, ""
		case "end":
			if s.position < op.Offset {
				return s, fmt.Sprintf("messages from %d up to %d were left", s.position, op.Offset)
			}
			return s, ""
		}
		return s, "no operation of this model"
	}
	return register{owned{seq: -1, epoch: -1, lineage: -1}, step}
}

// Whoever decides has read where the group is.
func looks(s owned, op *operation) (state, string) {
	switch {
	case s.seq != op.Before:
		return s, fmt.Sprintf("its state was that of fact %d, and not of %d", op.Before, s.seq)
	case s.position != op.Offset:
		return s, fmt.Sprintf("it saw the position %d, which was %d", op.Offset, s.position)
	case op.Delivered >= 0 && s.delivered != op.Delivered:
		return s, fmt.Sprintf("it saw that messages below %d were given to somebody; those below %d were", op.Delivered, s.delivered)
	}
	s.looked = op.Seq
	return s, ""
}

func commits(s owned, op *operation) (state, string) {
	if s.seq != op.Before {
		return s, fmt.Sprintf("fact %d follows %d, and not %d", op.Seq, op.Before, s.seq)
	}
	if op.Looked && s.looked != op.Seq {
		return s, "its decider has not looked yet"
	}
	before, said, given := s, int64(-1), int64(-1)
	s.seq, s.store = op.Seq, op.Store
	for _, c := range op.Changes {
		if c.Kind != "HandoffStarted" && c.Kind != "HandoffCancelled" {
			if said >= 0 && c.Offset != said {
				return before, fmt.Sprintf("%s is at %d, and what comes before it in the commit at %d", c.Kind, c.Offset, said)
			}
			said = c.Offset
		}
		if c.EpochBefore != nil && c.Kind != "PartitionAdded" && *c.EpochBefore != s.epoch {
			return before, fmt.Sprintf("%s follows epoch %d, which is %d", c.Kind, *c.EpochBefore, s.epoch)
		}
		if op.Moved && c.Kind != "Floor" && c.Kind != "PositionReset" && c.Offset > s.position {
			return before, fmt.Sprintf("in the replica the position was %d, and never more than %d before", c.Offset, s.position)
		}
		why := ""
		switch c.Kind {
		case "PartitionAdded", "PositionReset":
			if c.Kind == "PositionReset" && c.Epoch <= s.epoch {
				return before, fmt.Sprintf("a reset begins epoch %d after epoch %d", c.Epoch, s.epoch)
			}
			s.owner, s.epoch, s.lineage = "", c.Epoch, c.Epoch
			s.delivered = max(s.delivered, c.Delivered, c.Offset)
			s.begins(c.Offset)
		case "PartitionRemoved", "HandoffStarted", "HandoffCancelled":
		case "Floor":
			if op.Moved {
				s.position = max(s.position, c.Offset)
			}
		case "Granted", "Unassigned", "Released":
			s, why = s.changes(c, op.Moved)
			given = max(given, c.Delivered)
		default:
			why = c.Kind + " is not in this model"
		}
		if why != "" {
			return before, why
		}
	}
	if op.Moved && given >= 0 && given < before.delivered { // by what the commit says in the end
		return before, fmt.Sprintf("messages below %d may have been given to somebody, and not only those below %d", before.delivered, given)
	}
	return s, ""
}

// A new lineage begins: what was planned and finished before does not count.
func (s *owned) begins(offset int64) {
	s.position, s.planned, s.finished, s.fresh = offset, offset, offset, true
}

func (s owned) changes(c change, moved bool) (owned, string) {
	switch {
	case c.Kind != "Released" && c.Epoch <= s.epoch:
		return s, fmt.Sprintf("epoch %d was granted after epoch %d", c.Epoch, s.epoch)
	case c.Kind == "Released" && c.Incarnation != s.owner:
		return s, fmt.Sprintf("%s released what %s owned", c.Incarnation, s.owner)
	case c.Kind == "Released" && !s.fresh && c.Offset != s.planned:
		return s, fmt.Sprintf("it was released at %d, and planned up to %d", c.Offset, s.planned)
	}
	s.epoch, s.owner = c.Epoch, ""
	// An acknowledgement that came since the decider looked is void.
	s.position = c.Offset
	if c.Lineage != s.lineage {
		s.lineage = c.Lineage
		s.begins(c.Offset)
	}
	if moved {
		s.delivered = max(s.delivered, c.Delivered)
		s.begins(c.Offset)
	}
	if c.Kind == "Granted" {
		s.owner, s.fresh = c.Incarnation, true
	}
	return s, ""
}

// One row of the ack table: what is finished, and what is about to be delivered.
func acknowledges(s owned, op *operation, holders map[int64]holder) (state, string) {
	if op.Store < s.store {
		return s, "" // it is not copied any more
	}
	before := s
	if op.Incarnation == "promotion" {
		s.delivered = max(s.delivered, op.End)
		return s, ""
	}
	own, granted := holders[op.Epoch]
	switch {
	case !granted || own.seq > s.seq:
		return before, fmt.Sprintf("epoch %d is nobody's yet", op.Epoch)
	case own.incarnation != op.Incarnation:
		return before, fmt.Sprintf("epoch %d is that of %s", op.Epoch, own.incarnation)
	case len(op.Seen) == 2 && (s.delivered < op.Seen[0] || s.delivered > op.Seen[1]):
		return before, fmt.Sprintf("by the marks messages below %d to %d had been given to somebody; it was those below %d", op.Seen[0], op.Seen[1], s.delivered)
	}
	s.delivered = max(s.delivered, op.End)
	if op.Epoch != s.epoch || op.Incarnation != s.owner {
		// What it acknowledges counts no more. If the partition comes back to it, it goes on behind what it has planned.
		if op.Planned && s.owner == "" && op.Epoch >= s.lineage {
			s.planned = max(s.planned, op.End)
		}
		return s, ""
	}
	if op.Offset > s.position {
		if op.Offset > s.finished {
			return before, fmt.Sprintf("it acknowledged up to %d, and had finished up to %d", op.Offset, s.finished)
		}
		s.position = op.Offset
	}
	if op.Planned {
		if op.Start > s.planned || op.Start < s.position || (!s.fresh && op.Start != s.planned) {
			return before, fmt.Sprintf("it planned from %d, behind %d with the position %d", op.Start, s.planned, s.position)
		}
		s.planned, s.fresh = max(s.planned, op.End), false
	}
	return s, ""
}

// What somebody is given was planned, under an epoch of that instance.
func delivers(s owned, op *operation, holders map[int64]holder) string {
	own, granted := holders[op.Epoch]
	switch {
	case op.Store < s.store:
		return ""
	case !granted || own.seq > s.seq:
		return fmt.Sprintf("epoch %d is nobody's yet", op.Epoch)
	case own.instance != op.Instance:
		return fmt.Sprintf("epoch %d is that of %s, and not of %s", op.Epoch, own.instance, op.Instance)
	case !op.Planned:
		return fmt.Sprintf("nobody planned exactly %d up to %d under epoch %d", op.Start, op.End, op.Epoch)
	case op.End > s.delivered:
		return fmt.Sprintf("only messages below %d were planned", s.delivered)
	}
	return ""
}
