// Package calls has the system calls of x86-64: their numbers, names and parameters.
package calls

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

//go:embed calls.txt
var table string

// Call is a system call.
type Call struct {
	Number int
	Name   string
	Params []Param // at most 6
}

// Param is a parameter, its type as C has it.
type Param struct{ Name, C string }

// All are all of them, in the order of the table. It is read when it is asked for first.
var All = sync.OnceValue(func() (all []Call) {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, params, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(number)
		call := Call{Number: n, Name: name}
		for p := range strings.SplitSeq(params, ", ") {
			if at := strings.LastIndexByte(p, ' '); at >= 0 {
				call.Params = append(call.Params, Param{Name: p[at+1:], C: p[:at]})
			}
		}
		all = append(all, call)
	}
	return all
})

// Name is that of a call by its number; "" for none.
func Name(number int) string {
	for _, call := range All() {
		if call.Number == number {
			return call.Name
		}
	}
	return ""
}

// Number is that of a call by its name; -1 for none.
func Number(name string) int {
	for _, call := range All() {
		if call.Name == name {
			return call.Number
		}
	}
	return -1
}
