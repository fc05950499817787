package main

import "fmt"

// How many messages a partition has had.
type length int64

// A partition is a log. What is appended gets the next offsets, whoever appends; whoever reads an offset gets what was appended there.
// Where an append was put is known from whoever read it.
func appendOnly(ops []*operation) register {
	at := map[int64]string{}
	for _, op := range ops {
		if op.Op == "append" {
			for i, value := range op.Values {
				at[op.Start+int64(i)] = value
			}
		}
	}
	step := func(from state, op *operation) (state, string) {
		next, ok := from.(length)
		if !ok {
			return from, "no state of a log"
		}
		switch op.Op {
		case "append":
			if op.Start < 0 {
				return next, "nobody was given it, so it is nowhere"
			}
			if op.Start != int64(next) {
				return next, fmt.Sprintf("it was put at %d, and the next offset was %d", op.Start, next)
			}
			return next + length(len(op.Values)), ""
		case "read":
			for i, value := range op.Values {
				offset := op.Start + int64(i)
				if offset >= int64(next) {
					return next, fmt.Sprintf("at %d there was nothing yet", offset)
				}
				if at[offset] != value {
					return next, fmt.Sprintf("at %d it read %s, and %s was appended there", offset, value, at[offset])
				}
			}
			return next, ""
		}
		return next, "no operation of this model"
	}
	return register{length(0), step}
}
