package harness

import (
	"runtime"
	"strings"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
)

// words are the registers that texts of programs ask for, on each machine: the first argument, the result, and
// the stack pointer.
var words = map[string]struct {
	is bpf.Context
	in *strings.Replacer
}{
	"amd64": {bpf.AMD64, strings.NewReplacer("ARG1", "r1 +112", "RESULT", "r1 +80", "STACK", "r1 +152")},
	"arm64": {bpf.ARM64, strings.NewReplacer("ARG1", "r1 +0", "RESULT", "r1 +0", "STACK", "r1 +248")},
}

// Assembled makes a program of assembly text.
func Assembled(name string, kind bpf.Kind, text string, maps ...*bpf.MapSpec) (*bpf.Program, error) {
	context := words[runtime.GOARCH]
	insns, err := bpftest.Assemble(context.in.Replace(text), maps...)
	return &bpf.Program{Name: name, Kind: kind, Context: context.is, Insns: insns, Maps: maps}, err
}

// Load makes programs of assembly text, by name.
func Load(t testing.TB, s *kprobe.Session, maps []*bpf.MapSpec, kinds map[string]bpf.Kind, texts map[string]string) *kprobe.Programs {
	t.Helper()
	c := &bpf.Collection{Maps: maps}
	for name, text := range texts {
		p, err := Assembled(name, kinds[name], text, maps...)
		OK(t, err)
		c.Programs = append(c.Programs, p)
	}
	ps, err := s.Load(c)
	OK(t, err)
	return ps
}

// Programs that take their time, and that ask for memory that is not there.
const (
	BusyText = `
		r6 = 100
		r7 = *(u64 *)(STACK)
	again:
		r1 = r10
		r1 += -8
		r2 = 8
		r3 = r7
		call probe_read_user
		r6 += -1
		if r6 != 0 goto again
		r0 = 0
		exit`
	FaultyText = `
		r1 = r10
		r1 += -8
		r2 = 8
		r3 = 4096
		call probe_read_user
		r0 = 0
		exit`
)
