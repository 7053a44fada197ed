package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/event"
	"kprobe/spec"
	"kprobe/symbol"
)

// The names that arguments have which tell where a call is on its stack.
const (
	argSP  = "__sp"
	argRet = "__ret"
	argG   = "__g"
	argHi  = "__hi"
)

// How many calls of a kernel's function may be under way: of one by name, and of each of a pattern's. In a process they are as many
// as there is room for.
const (
	manyCalls = 4096
	fewCalls  = 256
)

// Goroutines is where a thread of a Go program has its current goroutine.
type Goroutines struct {
	Current int32 // from the thread pointer to the word that holds the goroutine's descriptor
	ID      int   // offset of its number in it
}

// Definitions are the lines of trace that a call graph of functions is made of: for each place, which may have
// arguments and a condition behind it, one at the functions' beginnings and one at their returns. Arguments with
// $retval are of the return. Without any, all parameters and the result are asked for. n tells the places apart, and kernel
// whether they are a kernel's.
// threads is the register that the thread pointer is in; goroutines is nil for what is not Go.
//
// They are for a trace.Tracer with Calls.
func Definitions(n int, place string, threads string, goroutines *Goroutines, kernel bool) []string {
	words := strings.Fields(place)
	if len(words) == 0 {
		return nil
	}
	cond := ""
	if i := slices.Index(words, "if"); i >= 0 {
		words, cond = words[:i], " "+strings.Join(words[i:], " ")
	}
	var args, results []string
	for _, w := range words[1:] {
		if strings.Contains(w, "$retval") {
			results = append(results, w)
		} else {
			args = append(args, w)
		}
	}
	if len(args)+len(results) == 0 {
		args, results = []string{"$arg*"}, []string{"ret=$retval"}
	}
	hidden := argSP + "=$stack"
	if g := goroutines; g != nil {
		at := fmt.Sprintf("%+d(%%%s)", g.Current, threads)
		hidden += fmt.Sprintf(" %s=+%d(%s):u64 %s=+8(%s):x64", argG, g.ID, at, argHi, at)
	}
	active := ""
	switch {
	case kernel && strings.ContainsAny(words[0], "*?["):
		active = strconv.Itoa(fewCalls)
	case kernel:
		active = strconv.Itoa(manyCalls)
	}
	join := func(words []string) string { return strings.Join(append([]string{""}, words...), " ") }
	return []string{
		fmt.Sprintf("p:graph/call%d %s %s %s=+0($stack)%s%s", n, words[0], hidden, argRet, join(args), cond),
		fmt.Sprintf("r%s:graph/ret%d %s %s%s", active, n, words[0], hidden, join(results)),
	}
}

// Calls makes calls of the events of Definitions.
type Calls struct {
	Nest
	names map[string]string

	// Mapped tells whether an address is in a file's code: a return address that is not is that of a probe, which
	// stands there while a function is under way.
	Mapped func(pid int, addr uint64) bool

	// Kernel tells that calls are a kernel's: each lies on one of its stacks.
	Kernel bool

	// Own tells whether an address is on the stack that a process's thread was born with, as far as that is known. Nil: all are.
	Own func(pid, tid int, sp uint64) bool

	Revived uint64 // calls that were over as Unwound, and have returned after all

	stacks stacks
}

// kernelStack is how large a kernel's stacks are, and aligned (x86-64's THREAD_SIZE and IRQ_STACK_SIZE, arm64's THREAD_SIZE).
const kernelStack = 16 << 10

// Take takes the next event, in order of time. It keeps nothing of it.
func (c *Calls) Take(e *event.Event) {
	var sp, ret, g, hi uint64
	n := 0
	for n < len(e.Args) && strings.HasPrefix(e.Args[n].Name, "__") {
		v := &e.Args[n]
		switch n++; v.Name {
		case argSP:
			sp = v.Bits
		case argRet:
			ret = v.Bits
		case argG:
			g = v.Bits
		case argHi:
			hi = v.Bits
		}
	}
	if g != 0 {
		sp -= hi // stacks move: their ends stay
	}
	stack, name := uint64(0), c.nameOf(e)
	switch {
	case c.Kernel:
		stack = sp / kernelStack
	case g == 0:
		stack = c.stackOf(e.PID, e.TID, name, sp, e.Return)
		c.Nest.unwound = c.unwound
	}
	args := keep(e.Args[n:])
	if e.Return {
		r := Return{PID: e.PID, TID: e.TID, Goroutine: g, Stack: stack, Name: name, Time: e.Time, SP: sp, Result: args}
		if c.Leave(r) == nil && g == 0 {
			c.late(r)
		}
		return
	}
	s := Span{PID: e.PID, TID: e.TID, Comm: e.Comm, Goroutine: g, Stack: stack, Name: name, Start: e.Time, Args: args}
	c.Enter(Entry{Span: s, Place: sp, Swapped: ret != 0 && c.Mapped != nil && !c.Mapped(e.PID, ret)})
}

// nameOf is the function's name as its source has it.
func (c *Calls) nameOf(e *event.Event) string {
	if e.Func == "" {
		return fmt.Sprintf("%#x", uint64(e.Addr))
	}
	name, ok := c.names[e.Func]
	if !ok {
		if c.names == nil {
			c.names = make(map[string]string)
		}
		name = symbol.Readable(e.Func)
		c.names[e.Func] = name
	}
	return name
}

// keep copies values, whose room is used again.
func keep(vs []event.Value) []event.Value {
	vs = slices.Clone(vs)
	for i := range vs {
		vs[i].Elems = slices.Clone(vs[i].Elems)
	}
	return vs
}

// appendArgs writes values as a call has them: "a=1, b=2".
func appendArgs(dst []byte, vs []event.Value) []byte {
	vs = event.Fold(vs)
	for i := range vs {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(dst, vs[i].Name...), '=')
		if vs[i].Base == spec.Trace {
			dst = append(dst, "..."...)
			continue
		}
		dst = vs[i].AppendText(dst)
	}
	return dst
}
