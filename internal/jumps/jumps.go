// Package jumps finds the places of a file's code where jumps can replace instructions: symbol
// knows the file, and patch draws the conclusions. It touches no target. It imports symbol, patch,
// isa (the interface only) and arch.
package jumps

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// Code is the code of an ELF file, at the addresses that it is mapped at.
type Code struct {
	Flow *patch.Flow
	Text []patch.Part
	Bias arch.Addr // address minus the file's own

	isa   isa.ISA
	funcs []symbol.Symbol
}

// Open reads all code of a file, at the file's own addresses; that takes some
// 20 ms a MiB. It is done once for a file, whatever the number of processes and
// probes. Errors: the code cannot be read.
func Open(m isa.ISA, f *symbol.File) (*Code, error) {
	var im patch.Image
	for _, r := range f.Constants() {
		b := make([]byte, r.End-r.Start)
		if f.ReadAt(r.Start, b) == nil {
			im.Data = append(im.Data, patch.Part{Addr: arch.Addr(r.Start), Code: b})
		}
	}
	for _, a := range f.CodePoints() {
		im.Points = append(im.Points, arch.Addr(a))
	}
	if err := readText(f, &im, f.ReadAt); err != nil {
		return nil, err
	}
	c := &Code{isa: m, funcs: f.Funcs(), Text: im.Text, Flow: patch.NewFlow(m, &im)}
	c.Flow.Unpadded = !f.MayBeGuarded()
	return c, nil
}

// Live is a kernel: its code is in memory only, and more than its code knows where to go there.
type Live interface {
	arch.Reader
	// Leads is as target.Machine has it.
	Leads(into arch.Addr) (data []arch.Range, points []arch.Addr, err error)
}

// OpenLive is Open for a kernel whose symbols f has. No trap under a jump would be served there.
func OpenLive(m isa.ISA, f *symbol.File, k Live) (*Code, error) {
	text := f.Text()
	if len(text) == 0 {
		return nil, errors.New("no text")
	}
	data, points, err := k.Leads(arch.Addr(text[0].Start))
	if err != nil {
		return nil, err
	}
	im := patch.Image{Points: points}
	for _, r := range data {
		b := make([]byte, r.End-r.Start)
		if err := k.ReadAt(r.Start, b); err != nil {
			return nil, err
		}
		im.Data = append(im.Data, patch.Part{Addr: r.Start, Code: b})
	}
	if err := readText(f, &im, func(at uint64, p []byte) error { return k.ReadAt(arch.Addr(at), p) }); err != nil {
		return nil, err
	}
	c := &Code{isa: m, funcs: f.Funcs(), Text: im.Text, Flow: sweepOf(m, &im).Flow(&im)}
	c.Flow.Unguarded = true // Unpadded stays false: a kernel's file does not tell
	return c, nil
}

// swept keeps the sweep of the kernel that was opened last. Another session on the same kernel
// finds the same code, and need not decode it.
var swept struct {
	sync.Mutex
	*patch.Sweep
	of *arch.Arch
}

func sweepOf(m isa.ISA, im *patch.Image) *patch.Sweep {
	swept.Lock()
	defer swept.Unlock()
	same := func(a, b patch.Part) bool { return a.Addr == b.Addr && bytes.Equal(a.Code, b.Code) }
	if swept.of != m.Arch() || !slices.EqualFunc(swept.Text, im.Text, same) || !slices.Equal(swept.Funcs, im.Funcs) {
		swept.of, swept.Sweep = m.Arch(), patch.NewSweep(m, im.Text, im.Funcs)
	}
	return swept.Sweep
}

// readText completes an image by the code itself, and by where functions begin in it.
func readText(f *symbol.File, im *patch.Image, readAt func(uint64, []byte) error) error {
	end := uint64(0)
	for _, r := range f.Text() {
		if r.Start < end {
			continue // sections do not overlap, but the file is not to be trusted
		}
		end = r.End
		b := make([]byte, r.End-r.Start)
		if err := readAt(r.Start, b); err != nil {
			return err
		}
		im.Text = append(im.Text, patch.Part{Addr: arch.Addr(r.Start), Code: b})
	}
	for _, s := range f.Funcs() {
		im.Funcs = append(im.Funcs, arch.Addr(s.Addr))
	}
	return nil
}

// At is the same code where a process has mapped it.
func (c *Code) At(bias uint64) *Code {
	moved := *c
	moved.Bias = arch.Addr(bias)
	by := moved.Bias - c.Bias
	moved.Flow = c.Flow.Moved(by)
	moved.Text = slices.Clone(c.Text)
	for i := range moved.Text {
		moved.Text[i].Addr += by
	}
	return &moved
}

// Body decodes a function of the file.
func (c *Code) Body(fn symbol.Symbol) *patch.Body {
	addr := arch.Addr(fn.Addr) + c.Bias
	i := slices.IndexFunc(c.Text, func(p patch.Part) bool { return addr >= p.Addr && addr-p.Addr < arch.Addr(len(p.Code)) })
	if i < 0 {
		return patch.NewBody(c.isa, patch.Part{Addr: addr}, nil, c.Flow)
	}
	code := c.Text[i].Code[addr-c.Text[i].Addr:]
	size := min(int(fn.Size), len(code))
	after := code[size:min(len(code), size+c.isa.Arch().MaxInsn)]
	return patch.NewBody(c.isa, patch.Part{Addr: addr, Code: code[:size:size]}, after, c.Flow)
}

// Functions are the functions that have bounds, one of each address; stubs of
// the PLT are not among them.
func (c *Code) Functions() []symbol.Symbol {
	var fns []symbol.Symbol
	for _, s := range c.funcs {
		if s.Size > 0 && s.Source != symbol.Plt && (len(fns) == 0 || fns[len(fns)-1].Addr != s.Addr) {
			fns = append(fns, s)
		}
	}
	return fns
}
