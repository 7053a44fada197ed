package patch_test

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
	"kprobe/internal/testprog"
)

// flow reads a file as package jumps does, but for what data refers to.
func (p *program) flow() *patch.Flow {
	var im patch.Image
	for start, b := range p.text {
		im.Text = append(im.Text, patch.Part{Addr: arch.Addr(start), Code: b})
	}
	for _, s := range p.Funcs() {
		im.Funcs = append(im.Funcs, arch.Addr(s.Addr))
	}
	return patch.NewFlow(amd64.ISA, &im)
}

var (
	objdumpLine   = regexp.MustCompile(`^ *([0-9a-f]+):\t(?:(?:bnd|notrack|lock|repz|repnz|[c-g]s) )*([a-z,]+) *(?:([0-9a-f]+) <|.*# ([0-9a-f]+) <)?`)
	objdumpSymbol = regexp.MustCompile(`^([0-9a-f]{16}) <`)
)

// Every direct branch and relative operand that objdump sees is in the index,
// and every instruction of functions.
func TestFlowAgainstObjdump(t *testing.T) {
	paths := []string{testprog.Build(t, "threads", "-O2")}
	if !testing.Short() {
		paths = append(paths, "/lib/x86_64-linux-gnu/libc.so.6", testprog.Build(t, "goprog"))
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			p := open(t, path)
			flow := p.flow()
			cmd := exec.Command("objdump", "-d", "-w", "--no-show-raw-insn", path)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines, branches, missing := 0, 0, 0
			for s := bufio.NewScanner(out); s.Scan(); {
				if m := objdumpSymbol.FindStringSubmatch(s.Text()); m != nil {
					if a := hex(t, m[1]); !knows(flow, a) && p.funcStarts(a) {
						t.Errorf("function at %v is not known", a)
					}
					continue
				}
				m := objdumpLine.FindStringSubmatch(s.Text())
				if m == nil {
					continue
				}
				at := hex(t, m[1])
				if f, ok := p.FuncAt(uint64(at)); !ok || f.Size == 0 || !flow.IsInsn(at) {
					if ok && f.Size > 0 {
						missing++ // objdump takes a prefix for an instruction, or data in code
					}
					continue
				}
				lines++
				for _, target := range m[3:] {
					if target == "" {
						continue
					}
					to := hex(t, target)
					if _, code := p.FuncAt(uint64(to)); code {
						branches++
						if !knows(flow, to) {
							t.Fatalf("%s: %v is not known", s.Text(), to)
						}
					}
				}
			}
			io.Copy(io.Discard, out)
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d instructions, %d references to code, %d lines are no instructions to us", lines, branches, missing)
			if branches < lines/20 || missing > lines/1000 {
				t.Errorf("%d instructions, %d references to code, %d lines are no instructions to us", lines, branches, missing)
			}
		})
	}
}

func hex(t *testing.T, s string) arch.Addr {
	t.Helper()
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return arch.Addr(v)
}

func knows(f *patch.Flow, a arch.Addr) bool {
	_, ok := f.Known(a, a+1)
	return ok
}

func (p *program) funcStarts(a arch.Addr) bool {
	s, ok := p.FuncAt(uint64(a))
	return ok && s.Addr == uint64(a)
}

// Known finds the first and nothing outside of the range that it is asked for.
func TestFlowKnown(t *testing.T) {
	code := make([]byte, 400)
	for i := range code {
		code[i] = 0x90
	}
	marks := []arch.Addr{0x1000, 0x103f, 0x1040, 0x10ff, 0x118f, 0x1190, 0xfff} // the last two are not in the text
	flow := patch.NewFlow(amd64.ISA, &patch.Image{Text: []patch.Part{{Addr: 0x1000, Code: code}}, Points: marks})
	moved := flow.Moved(0x7000)
	for start := arch.Addr(0xff0); start < 0x11a0; start++ {
		for _, n := range []arch.Addr{0, 1, 4, 63, 64, 65, 500} {
			want, found := arch.Addr(0), false
			for a := start; a < start+n && !found; a++ {
				for _, m := range marks[:5] {
					if a == m {
						want, found = a, true
					}
				}
			}
			if got, ok := flow.Known(start, start+n); ok != found || ok && got != want {
				t.Fatalf("Known(%v, +%d) = %v %v, want %v %v", start, n, got, ok, want, found)
			}
			if got, ok := moved.Known(start+0x7000, start+n+0x7000); ok != found || ok && got != want+0x7000 {
				t.Fatalf("moved: Known(%v, +%d) = %v %v, want %v %v", start, n, got, ok, want, found)
			}
		}
	}
}
