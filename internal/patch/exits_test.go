package patch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/isa/s390x"
	"kprobe/internal/patch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// program is a file with its code in hand.
type program struct {
	*symbol.File
	text map[uint64][]byte // by start of the executable segment
}

func open(t testing.TB, path string) *program {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	sf, err := symbol.Open(f, &symbol.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	p := &program{sf, map[uint64][]byte{}}
	for _, r := range sf.Text() {
		off, ok := sf.OffOf(r.Start)
		b := make([]byte, r.End-r.Start)
		if _, err := f.ReadAt(b, int64(off)); !ok || err != nil {
			t.Fatalf("%s: text at %#x: %v", path, r.Start, err)
		}
		p.text[r.Start] = b
	}
	return p
}

func (p *program) part(s symbol.Symbol) (patch.Part, bool) {
	for start, b := range p.text {
		if s.Addr >= start && s.Size <= uint64(len(b)) && s.Addr-start <= uint64(len(b))-s.Size {
			return patch.Part{Addr: arch.Addr(s.Addr), Code: b[s.Addr-start:][:s.Size]}, true
		}
	}
	return patch.Part{}, false
}

// exits analyses one function the way the engine does.
func (p *program) exits(s symbol.Symbol) (*patch.Exits, error) {
	fn, ok := p.part(s)
	if !ok {
		return nil, errors.New("no code")
	}
	return patch.FindExits(amd64.ISA, fn, fn.Addr, func(to arch.Addr) (patch.Part, bool) {
		o, ok := p.FuncAt(uint64(to))
		if !ok || o.Name != "" && !strings.Contains(o.Name, ".cold") {
			return patch.Part{}, false
		}
		return p.part(o)
	})
}

// Nearly all of what compilers make can be analysed; the rest is hand-written
// code, and is refused.
func TestExitsOfRealCode(t *testing.T) {
	for _, tt := range []struct {
		path  string
		share float64 // of functions whose exits are known
	}{
		{"/lib/x86_64-linux-gnu/libc.so.6", 0.985},
		{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 1},
		{"/usr/bin/python3", 0.999},
		{"/usr/bin/gdb", 0.999},
		{testprog.Build(t, "goprog"), 1},
		{testprog.Build(t, "throws", "-O2"), 1},
		{testprog.Build(t, "rets", "-O2"), 1},
	} {
		t.Run(filepath.Base(tt.path), func(t *testing.T) {
			_, err := os.Stat(tt.path)
			testprog.Need(t, tt.path, err == nil)
			p := open(t, tt.path)
			n, known := 0, 0
			for _, s := range p.Funcs() {
				if s.Source == symbol.Plt || s.Size == 0 {
					continue
				}
				n++
				e, err := p.exits(s)
				var no *patch.NoExits
				if errors.As(err, &no) {
					t.Logf("%s: %v", s.Label(), err)
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", s.Label(), err)
				}
				known++
				for i, x := range e.Sites {
					if !e.Contains(x.Addr) || i > 0 && e.Sites[i-1].Addr >= x.Addr {
						t.Fatalf("%s: bad exits:\n%v", s.Label(), e)
					}
				}
			}
			t.Logf("%d functions, the exits of %.2f %% are known", n, 100*float64(known)/float64(n))
			if float64(known) < tt.share*float64(n) {
				t.Errorf("less than %.2f %%", 100*tt.share)
			}
		})
	}
}

// Each instruction that objdump calls a return is an exit, and nothing else is one of that kind;
// the same for computed jumps.
func TestExitsAgreeWithObjdump(t *testing.T) {
	tool, err := exec.LookPath("objdump")
	testprog.Need(t, "objdump", err == nil)
	for _, path := range []string{testprog.Build(t, "rets", "-O2"), testprog.Build(t, "throws", "-O2"), testprog.Build(t, "goprog")} {
		out, err := exec.Command(tool, "-d", "--no-show-raw-insn", "-j", ".text", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := map[arch.Addr]patch.ExitKind{}
		for line := range strings.Lines(string(out)) {
			at, text, ok := strings.Cut(line, ":\t")
			var a arch.Addr
			if !ok {
				continue
			}
			if _, err := fmt.Sscanf(strings.TrimSpace(at), "%x", &a); err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			words := strings.Fields(text)
			for len(words) > 1 && (words[0] == "bnd" || words[0] == "notrack" || strings.HasPrefix(words[0], "rep")) {
				words = words[1:]
			}
			switch {
			case words[0] == "ret" || words[0] == "lret":
				want[a] = patch.Ret
			case words[0] == "jmp" && len(words) > 1 && words[1][0] == '*':
				want[a] = patch.IndirectJump
			}
		}
		p := open(t, path)
		seen := 0
		for _, s := range p.Funcs() {
			e, err := p.exits(s)
			if err != nil || s.Source == symbol.Plt {
				continue
			}
			got := map[arch.Addr]patch.ExitKind{}
			for _, x := range e.Sites {
				got[x.Addr] = x.Kind
			}
			for a, k := range want {
				if e.Contains(a) {
					seen++
					if have, ok := got[a]; !ok || have != k {
						t.Errorf("%s: at %v objdump has a %v, we %v (%v)", s.Label(), a, k, have, ok)
					}
				}
			}
			for a, k := range got {
				if _, ok := want[a]; !ok && (k == patch.Ret || k == patch.IndirectJump) && s.Addr >= p.Funcs()[0].Addr && inText(p, a) {
					t.Errorf("%s: at %v we have a %v, objdump none", s.Label(), a, k)
				}
			}
		}
		if seen < 10 {
			t.Errorf("%s: only %d exits compared", path, seen)
		}
	}
}

// inText leaves out the sections around .text that objdump was not asked about.
func inText(p *program, a arch.Addr) bool {
	s, ok := p.FuncAt(uint64(a))
	return ok && s.Source != symbol.Plt && s.Name != "_init" && s.Name != "_fini"
}

func TestFindExits(t *testing.T) {
	const at = 0x1000
	cold := patch.Part{Addr: 0x2000, Code: []byte("\xe8\x00\x00\x00\x00\xc3\xe9\xf5\xef\xff\xff")} // call; ret; jmp 0x1000
	tests := []struct{ name, code, want string }{
		{"plain", "\x53\x5b\xc3", "0x1000-0x1003\n  0x1002 return\n"},
		{"several returns", "\x74\x01\xc3\xc2\x08\x00", "0x1000-0x1006\n  0x1002 return\n  0x1003 return\n"},
		{"repz ret", "\xf3\xc3", "0x1000-0x1002\n  0x1000 return\n"},
		{"loop inside", "\x90\x75\xfe\xc3", "0x1000-0x1004\n  0x1003 return\n"},
		{"loop to the start", "\x90\x75\xfd\xc3", "0x1000-0x1004\n  0x1001 restart\n  0x1003 return\n"},
		{"tail call", "\x53\x5b\xe9\x00\x01\x00\x00", "0x1000-0x1007\n  0x1002 tail jump\n"},
		{"conditional tail call", "\x0f\x84\x00\x01\x00\x00\xc3", "0x1000-0x1007\n  0x1000 tail jump\n  0x1006 return\n"},
		{"through a register", "\xff\xe0", "0x1000-0x1002\n  0x1000 indirect jump\n"},
		{"through memory", "\xff\x25\x00\x00\x00\x00", "0x1000-0x1006\n  0x1000 indirect jump\n"},
		{"never returns", "\x50\xe8\x00\x00\x00\x00", "0x1000-0x1006\n"},
		{"never returns, padded", "\xe8\x00\x00\x00\x00\x90\x66\x90", "0x1000-0x1008\n"},
		{"ends in ud2", "\xc3\x0f\x0b", "0x1000-0x1003\n  0x1000 return\n"},
		{"has a cold part", "\x0f\x84\xfa\x0f\x00\x00\xc3",
			"0x1000-0x1007\n  0x1006 return\n0x2000-0x200b\n  0x2005 return\n  0x2006 restart\n"},
		{"runs on", "\xc3\x53", "at 0x1002 control runs past the end of the function"},
		{"a system call at the end", "\x0f\x05", "at 0x1002 control runs past the end of the function"},
		{"cut short", "\xc3\xe8\x00", "at 0x1001 the bytes are no instruction: e8 00"},
		{"no instruction", "\x06\xc3", "at 0x1000 the bytes are no instruction: 06 c3"},
		{"overlapping", "\x74\x01\x66\x90\xc3", "at 0x1000 it jumps to 0x1003, between instructions"},
	}
	for _, tt := range tests {
		e, err := patch.FindExits(amd64.ISA, patch.Part{Addr: at, Code: []byte(tt.code)}, at, func(to arch.Addr) (patch.Part, bool) {
			return cold, to == cold.Addr
		})
		got := fmt.Sprint(err)
		if err == nil {
			got = e.String()
		}
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// A probe behind the landing pad is at the entry too, and a loop may begin there.
func TestExitsBehindLandingPad(t *testing.T) {
	fn := patch.Part{Addr: 0x1000, Code: []byte("\xf3\x0f\x1e\xfa\xff\xcf\x75\xfc\xc3")} // endbr64; dec edi; jnz 0x1004; ret
	for entry, want := range map[arch.Addr]string{
		0x1000: "0x1000-0x1009\n  0x1008 return\n",
		0x1004: "0x1000-0x1009\n  0x1006 restart\n  0x1008 return\n",
	} {
		e, err := patch.FindExits(amd64.ISA, fn, entry, func(arch.Addr) (patch.Part, bool) { return patch.Part{}, false })
		if err != nil || e.String() != want {
			t.Errorf("entry %v: %v\n%v", entry, err, e)
		}
	}
}

// For any bytes: no panic, and an analysis that is consistent.
func FuzzFindExits(f *testing.F) {
	f.Add([]byte("\x74\x01\xc3\xc2\x08\x00"), uint16(3))
	f.Add([]byte("\x0f\x84\x00\x00\x00\x00\xc3\xff\xe0"), uint16(6))
	f.Fuzz(func(t *testing.T, code []byte, split uint16) {
		n := min(int(split), len(code))
		fn, rest := patch.Part{Addr: 0x1000, Code: code[:n]}, patch.Part{Addr: 0x1000 + arch.Addr(n), Code: code[n:]}
		e, err := patch.FindExits(amd64.ISA, fn, fn.Addr, func(to arch.Addr) (patch.Part, bool) {
			return rest, to >= rest.Addr && to-rest.Addr < arch.Addr(len(rest.Code))
		})
		if err != nil {
			return
		}
		for _, x := range e.Sites {
			if !e.Contains(x.Addr) {
				t.Fatalf("% x: an exit outside:\n%v", code, e)
			}
			in, err := amd64.ISA.Decode(code[x.Addr-0x1000:], x.Addr)
			leaves := x.Kind == patch.IndirectJump || x.Kind == patch.Ret || x.Kind == patch.Restart && in.Target == 0x1000 ||
				x.Kind == patch.TailJump && !e.Contains(in.Target)
			if err != nil || !leaves || (x.Kind == patch.Ret) != (in.Flow == isa.Return) {
				t.Fatalf("% x: %v is not a %v (%v)", code, x.Addr, x.Kind, err)
			}
		}
	})
}

// An instruction that is carried out from somewhere else (s390x: exrl, ex) may be an exit. If it is
// none, control does not run past the end by it.
func TestExitsExecuted(t *testing.T) {
	const start = 0x400000
	mvc, br := []byte{0xd2, 0, 0x10, 0, 0x20, 0}, []byte{0x07, 0xfe}
	exrl := []byte{0xc6, 0x10, 0, 0, 0, 4} // the one behind the next
	for _, c := range []struct {
		name string
		code []byte
		want string
	}{
		{"a copy", slices.Concat(exrl, br, mvc), "0x400000-0x40000e\n  0x400006 return\n"},
		{"a return", slices.Concat(exrl, br, br), ""},
		{"somewhere", slices.Concat([]byte{0x44, 0x10, 0x20, 0}, br), ""},
		{"without", slices.Concat(br, mvc), ""},
	} {
		e, err := patch.FindExits(s390x.ISA, patch.Part{Addr: start, Code: c.code}, start, func(arch.Addr) (patch.Part, bool) { return patch.Part{}, false })
		if c.want == "" && err == nil || c.want != "" && (err != nil || e.String() != c.want) {
			t.Errorf("%s: %v, %v, want %q", c.name, e, err, c.want)
		}
	}
}
