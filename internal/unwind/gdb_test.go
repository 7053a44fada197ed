package unwind

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// stop is a place where gdb has stopped a program, and the stack that it shows there.
type stop struct {
	PC, SP, FP uint64
	Stack      string // bytes from SP, in hexadecimal
	Frames     []uint64
	Names      []string
}

// script has gdb run a program, stop it at random instructions, and tell what it sees.
const script = `
import gdb, json
gdb.execute("set pagination off")
gdb.execute("set width 0")
gdb.execute("set backtrace limit 100")
gdb.execute("set backtrace past-main on")
gdb.execute("handle all nostop noprint pass")
gdb.execute("handle SIGTRAP stop nopass")
gdb.execute("break %s")
gdb.execute("run")
gdb.execute("delete")
pid = gdb.selected_inferior().pid
out = open("%s", "w")
print(json.dumps(open("/proc/%%d/maps" %% pid).read()), file=out)
seed = 12345
for i in range(%d):
    seed = (seed * 1103515245 + 12345) & 0x7fffffff
    gdb.execute("stepi %%d" %% (1 + (seed >> 8) %% %d), to_string=True)
    f = gdb.newest_frame()
    frames, names = [], []
    reg = lambda n: int(f.read_register(n).cast(gdb.lookup_type("unsigned long")))
    pc, sp, fp = reg("rip"), reg("rsp"), reg("rbp")
    while f is not None and f.is_valid():
        if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            frames.append(int(f.pc()))
            names.append(str(f.name()))
        try:
            f = f.older()
        except gdb.error:
            break
    size = 1 << 14
    while size:
        try:
            stack = bytes(gdb.selected_inferior().read_memory(sp, size)).hex()
            break
        except gdb.MemoryError:
            size -= 512
    print(json.dumps(dict(PC=pc, SP=sp, FP=fp, Stack=stack, Frames=frames, Names=names)), file=out)
out.close()
gdb.execute("kill")
`

// stops runs a program under gdb.
func stops(t *testing.T, path, begin string, n, steps int) (maps []symbol.Mapping, all []stop) {
	t.Helper()
	gdb, err := exec.LookPath("gdb")
	testprog.Need(t, "gdb", err == nil)
	dir := t.TempDir()
	file, out := filepath.Join(dir, "stops.py"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, fmt.Appendf(nil, script, begin, out, n, steps), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(gdb, "-nx", "-batch", "-x", file, path)
	c.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	if testing.Short() {
		c.Env = append(c.Env, "LD_BIND_NOW=1") // few steps lead no further than the loader
	}
	msg, err := c.CombinedOutput()
	b, failed := os.ReadFile(out)
	if err != nil || failed != nil {
		t.Fatalf("%v, %v\n%s", err, failed, msg)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<24)
	lines.Scan()
	var text string
	if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	if maps, err = symbol.ParseMaps(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		var s stop
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if len(all) < n {
		t.Fatalf("%d stops of %d\n%s", len(all), n, msg)
	}
	return maps, all
}

// spaceOf is a space of files as they lie in this system.
func spaceOf(t *testing.T, maps []symbol.Mapping) *symbol.Space {
	s := symbol.NewSpace(func(m symbol.Mapping) (*symbol.File, error) {
		if !strings.HasPrefix(m.Path, "/") {
			return nil, errors.New("no file")
		}
		f, err := os.Open(m.Path)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { f.Close() })
		return symbol.Open(f, &symbol.Options{Path: m.Path, Debug: symbol.DebugFinder("/")})
	})
	s.Update(maps)
	return s
}

// walk walks a stop's stack.
func (s *stop) walk(t *testing.T, x Index) ([]uint64, End) {
	stack, err := hex.DecodeString(s.Stack)
	if err != nil {
		t.Fatal(err)
	}
	w := Walk{Index: x, Limit: 100, Read: func(addr uint64, p []byte) error {
		if addr < s.SP || addr-s.SP > uint64(len(stack)) || uint64(len(stack))-(addr-s.SP) < uint64(len(p)) {
			return errors.New("not of the stack")
		}
		copy(p, stack[addr-s.SP:])
		return nil
	}}
	return w.From(Regs{s.PC, s.SP, s.FP})
}

// program is one whose stacks are compared.
type program struct {
	name  string
	begin string // where to begin
	steps int    // at most so many instructions between stops
	build func(t *testing.T) string
}

func programs() []program {
	c := func(name string, flags ...string) program {
		return program{name, "main", 997, func(t *testing.T) string { return testprog.Build(t, "stacks", flags...) }}
	}
	return []program{
		c("C with frame pointers", "-O1", "-fno-omit-frame-pointer"),
		c("C without", "-O2", "-fomit-frame-pointer"),
		c("C, not optimized", "-O0"),
		c("C, static", "-O2", "-static"),
	}
}

// TestWalksAsGDB compares whole stacks at random instructions: in the midst of prologues and
// epilogues, in stubs of the PLT, in libc and its assembly, under a signal.
func TestWalksAsGDB(t *testing.T) {
	n, part, every := 300, 1, 1
	if testing.Short() {
		n, part, every = 100, 4, 2 // gdb's steps are dear
	}
	if os.Getenv("SOAK") != "" {
		n = 10000
	}
	for i, p := range programs() {
		if (i+1)%every != 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			maps, all := stops(t, p.build(t), p.begin, n, p.steps/part)
			x := IndexOf(spaceOf(t, maps))
			wrong, frames, short := 0, 0, 0
			for _, s := range all {
				have, end := s.walk(t, x)
				frames += len(have)
				if slices.Equal(have, s.Frames) {
					continue
				}
				if end == NotTold && len(have) < len(s.Frames) && slices.Equal(have, s.Frames[:len(have)]) {
					short++ // the loader's resolver saves its stack pointer in rbx
					continue
				}
				if wrong++; wrong <= 5 {
					t.Errorf("at %#x, sp %#x, fp %#x:\nhave %#x %q\nwant %#x\n%q", s.PC, s.SP, s.FP, have, end, s.Frames, s.Names)
				}
			}
			t.Logf("%d stacks of %d frames in all, %d end early, %d differ", len(all), frames, short, wrong)
			if short > len(all)/10 {
				t.Errorf("%d of %d stacks end early", short, len(all))
			}
		})
	}
}
