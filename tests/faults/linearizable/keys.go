package main

import "fmt"

// How many messages of a key one producer has sent, and how many of them a group has finished.
type progress struct {
	sent, done int64
}

// The messages of a key and producer are a queue for each group: one is begun only when all before it are finished, and one that was
// finished comes again only with a mark. They are numbered as the producer sends them.
func queueOfKey([]*operation) register {
	step := func(from state, op *operation) (state, string) {
		s, ok := from.(progress)
		if !ok {
			return from, "no state of a key"
		}
		switch op.Op {
		case "send":
			for _, number := range op.Numbers {
				if number != s.sent {
					return from, fmt.Sprintf("it sent message %d behind %d", number, s.sent)
				}
				s.sent++
			}
			return s, ""
		case "begin":
			next := s.done
			for i, number := range op.Numbers {
				switch {
				case number < 0:
					return from, "nobody sent it"
				case number >= s.sent:
					return from, fmt.Sprintf("message %d was not sent yet", number)
				case number == next:
					next++
				case number > next:
					return from, fmt.Sprintf("message %d was begun before message %d was finished", number, next)
				case !op.Marked[i]:
					return from, fmt.Sprintf("message %d came again without a mark", number)
				}
			}
			return s, ""
		case "finish":
			for _, number := range op.Numbers {
				if number == s.done {
					s.done++
				}
			}
			return s, ""
		case "end":
			if s.done < s.sent {
				return from, fmt.Sprintf("%d were sent and %d finished", s.sent, s.done)
			}
			return s, ""
		}
		return from, "no operation of this model"
	}
	return register{progress{}, step}
}
