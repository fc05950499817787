package main

import (
	"encoding/json"
	"fmt"
	"math"
)

// A change is what one fact of a group's control table says of a partition.
type change struct {
	Kind        string `json:"kind"`
	EpochBefore *int64 `json:"epoch_before"`
	Epoch       int64  `json:"epoch"`
	Lineage     int64  `json:"lineage"`
	Offset      int64  `json:"offset"`
	Delivered   int64  `json:"delivered"`
	Instance    string `json:"instance"`
	Incarnation string `json:"incarnation"`
}

// An operation is one line of the input: what a process invoked on a register, and when it was told of the end.
//
// Each model has fields of its own. Times are nanoseconds of one clock. Whoever died was never told: then there is no return.
type operation struct {
	Model    string `json:"model,omitempty"`
	Register string `json:"register,omitempty"`
	Op       string `json:"op"`
	Call     int64  `json:"call"`
	Return   *int64 `json:"return,omitempty"`

	// ownership
	Store       int      `json:"store,omitempty"`
	Before      int64    `json:"before,omitempty"`
	Seq         int64    `json:"seq,omitempty"`
	Looked      bool     `json:"looked,omitempty"`
	Moved       bool     `json:"moved,omitempty"`
	Changes     []change `json:"changes,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	Instance    string   `json:"instance,omitempty"`
	Epoch       int64    `json:"epoch,omitempty"`
	Planned     bool     `json:"planned,omitempty"`
	Seen        []int64  `json:"seen,omitempty"` // between which two offsets the first lay that nobody had been given

	// ownership, log
	Start     int64 `json:"start,omitempty"`
	End       int64 `json:"end,omitempty"`
	Offset    int64 `json:"offset,omitempty"`
	Delivered int64 `json:"delivered,omitempty"`

	// log
	Values []string `json:"values,omitempty"`

	// keys
	Numbers []int64 `json:"numbers,omitempty"`
	Marked  []bool  `json:"marked,omitempty"`
}

func (op *operation) until() int64 {
	if op.Return == nil {
		return math.MaxInt64
	}
	return *op.Return
}

// String is the line again, without the name of the register.
func (op *operation) String() string {
	short := *op
	short.Model, short.Register = "", ""
	text, err := json.Marshal(short)
	if err != nil {
		return fmt.Sprint(short)
	}
	return string(text)
}

// A state is comparable with ==.
type state any

// A register is one of a model's, with what its operations alone say.
//
// Its step gives the next state, or why the operation cannot be the next one.
type register struct {
	first state
	step  func(state, *operation) (state, string)
}

var models = map[string]func([]*operation) register{
	"ownership": ownership,
	"log":       appendOnly,
	"keys":      queueOfKey,
}
