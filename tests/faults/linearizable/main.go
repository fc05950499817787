// Command linearizable asks Porcupine whether what the processes of a history did can be explained by one order of moments.
//
// It reads operations as JSON lines from standard input, or from a file that is named, and prints one JSON object: the verdict (ok,
// illegal, or unknown if there was not enough time), and of each register that is illegal the operations at which it ends. The register
// with the fewest operations comes first.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	mostRegisters  = 5  // that are illegal and told
	mostOperations = 12 // of each
)

type stuck struct {
	Operation string `json:"operation"`
	Why       string `json:"why"`
}

type finding struct {
	Model      string   `json:"model"`
	Register   string   `json:"register"`
	Operations int      `json:"operations"`
	Explained  int      `json:"explained"`
	State      string   `json:"state"`
	Last       []string `json:"last"`
	Next       []stuck  `json:"next"`
}

type verdict struct {
	Verdict    string         `json:"verdict"`
	Operations map[string]int `json:"operations"`
	Registers  map[string]int `json:"registers"`
	Seconds    float64        `json:"seconds"`
	Unknown    []string       `json:"unknown"`
	Illegal    []finding      `json:"illegal"`
	IllegalIn  int            `json:"illegal_in"`
}

func main() {
	limit := flag.Duration("limit", time.Minute, "for all registers together")
	flag.Parse()
	if err := run(flag.Arg(0), *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(path string, limit time.Duration) error {
	from := io.Reader(os.Stdin)
	if path != "" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	registers, err := read(from)
	if err != nil {
		return err
	}
	told, err := check(registers, limit)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told)
}

// Operations by register, the smallest one first.
func read(from io.Reader) ([][]*operation, error) {
	found := map[[2]string][]*operation{}
	decoder := json.NewDecoder(bufio.NewReader(from))
	for {
		op := new(operation)
		if err := decoder.Decode(op); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("this is no operation: %w", err)
		}
		if op.Call > op.until() {
			return nil, fmt.Errorf("it returned before it was called: %s", op)
		}
		name := [2]string{op.Model, op.Register}
		found[name] = append(found[name], op)
	}
	var all [][]*operation
	for _, ops := range found {
		all = append(all, ops)
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if len(a) != len(b) {
			return len(a) < len(b)
		}
		return a[0].Model+a[0].Register < b[0].Model+b[0].Register
	})
	return all, nil
}

func check(registers [][]*operation, limit time.Duration) (verdict, error) {
	began := time.Now()
	told := verdict{Operations: map[string]int{}, Registers: map[string]int{}, Unknown: []string{}, Illegal: []finding{}}
	for _, ops := range registers {
		name := ops[0].Model
		begin, known := models[name]
		if !known {
			return told, fmt.Errorf("there is no model %q", name)
		}
		found := begin(ops)
		told.Operations[name] += len(ops)
		told.Registers[name]++
		left := limit - time.Since(began)
		if left <= 0 {
			told.Unknown = append(told.Unknown, name+" "+ops[0].Register)
			continue
		}
		switch model, history := modelOf(found), historyOf(ops); porcupine.CheckOperationsTimeout(model, history, left) {
		case porcupine.Unknown:
			told.Unknown = append(told.Unknown, name+" "+ops[0].Register)
		case porcupine.Illegal:
			told.IllegalIn++
			if len(told.Illegal) < mostRegisters {
				told.Illegal = append(told.Illegal, explain(found, model, ops, history, limit))
			}
		}
	}
	told.Seconds = time.Since(began).Seconds()
	switch {
	case told.IllegalIn > 0:
		told.Verdict = "illegal"
	case len(told.Unknown) > 0:
		told.Verdict = "unknown"
	default:
		told.Verdict = "ok"
	}
	return told, nil
}

func modelOf(of register) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return of.first },
		Step: func(from, input, _ interface{}) (bool, interface{}) {
			op, ok := input.(*operation)
			if !ok {
				return false, from
			}
			next, why := of.step(from, op)
			return why == "", next
		},
	}
}

// What an operation returned is part of what it says, so it is all input.
func historyOf(ops []*operation) []porcupine.Operation {
	var history []porcupine.Operation
	for _, op := range ops {
		history = append(history, porcupine.Operation{Input: op, Call: op.Call, Return: op.until()})
	}
	return history
}

// How far the longest order comes, and why nothing can be the next operation.
func explain(of register, model porcupine.Model, ops []*operation, history []porcupine.Operation, limit time.Duration) finding {
	_, info := porcupine.CheckOperationsVerbose(model, history, limit)
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	at, done := of.first, map[*operation]bool{}
	told := finding{Model: ops[0].Model, Register: ops[0].Register, Operations: len(ops), Explained: len(longest), Last: []string{}}
	for i, linearized := range longest {
		op := linearized.Input.(*operation)
		at, _ = of.step(at, op)
		done[op] = true
		if i >= len(longest)-3 {
			told.Last = append(told.Last, op.String())
		}
	}
	told.State = fmt.Sprintf("%+v", at)
	first := int64(math.MaxInt64) // end of those that are left
	for _, op := range ops {
		if !done[op] {
			first = min(first, op.until())
		}
	}
	for _, op := range ops {
		if !done[op] && op.Call <= first && len(told.Next) < mostOperations {
			if _, why := of.step(at, op); why != "" {
				told.Next = append(told.Next, stuck{op.String(), why})
			}
		}
	}
	return told
}
