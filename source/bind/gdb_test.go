package bind_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/source"
	"kprobe/source/bind"
	"kprobe/spec"
	"kprobe/symbol"
)

// told is a value as gdb has it.
type told struct {
	N                   string // of numbers, pointers and enumerations: the bits
	Members             map[string]told
	Out                 bool   // optimized out
	Fault, Error, Other string // it cannot be read; gdb does not know how; something else than these
}

// stop is a place where gdb has stopped a program, and the variables that it shows there.
type stop struct {
	PID, TID int
	PC       uint64
	Func     string
	Stack    []uint64 // the PC's function is as it stands, of all others it is where they go on
	Inline   bool     // it is in a copy that is inlined
	Regs     map[string]uint64
	Vectors  []uint64 // two halves of each
	Vars     []struct {
		Name string
		V    told
	}
}

// table counts how values compare, by what came out.
type table map[string]int

func (x table) String() string {
	var out []string
	for _, k := range slices.SortedFunc(maps.Keys(x), func(a, b string) int { return x[b] - x[a] }) {
		out = append(out, fmt.Sprintf("%7d  %s", x[k], k))
	}
	return strings.Join(out, "\n")
}

// process is a program that stands still under gdb.
type process struct {
	space *symbol.Space
	mem   *os.File
	asked bool // the last value that was read was passed by a caller
}

func (p *process) ReadAt(addr arch.Addr, b []byte) error {
	_, err := p.mem.ReadAt(b, int64(addr))
	return err
}

func openProcess(t *testing.T, pid int) *process {
	text, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	ms, err := symbol.ParseMaps(text)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{}
	if p.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.mem.Close() })
	p.space = symbol.NewSpace(func(m symbol.Mapping) (*symbol.File, error) {
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
	p.space.Update(ms)
	return p
}

// program is one whose variables are compared.
type program struct {
	path  string
	begin string   // the function that it begins with
	args  []string // of the program
	work  func()   // once it runs
	again bool     // places are stopped at more than once
}

// stops has gdb stop a program at random statements of random functions, and calls see at each.
func (p *program) stops(t *testing.T, n int, see func(*process, *stop)) {
	t.Helper()
	gdb, err := exec.LookPath("gdb")
	testprog.Need(t, "gdb", err == nil)
	r, err := os.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	file, err := symbol.Open(r, &symbol.Options{Path: p.path, Debug: symbol.DebugFinder("/")})
	if err != nil {
		t.Fatal(err)
	}
	f, err := bind.Of(file)
	if err != nil {
		t.Fatal(err)
	}
	main, err := f.Function(p.begin, "")
	if err != nil {
		t.Fatal(err)
	}
	var places []uint64
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	names := f.Functions()
	rnd.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for _, name := range names {
		fns, err := f.Function(name, "")
		if err != nil || len(places) > min(3000, 20*n) {
			continue
		}
		for _, fn := range fns {
			lines := f.Lines(fn)
			for range min(4, len(lines)) {
				sites, err := f.Line(fn.File, lines[rnd.IntN(len(lines))])
				if err == nil && len(sites) < 8 {
					places = append(places, sites[rnd.IntN(len(sites))].Addr)
				}
			}
		}
	}
	dir := t.TempDir()
	conf := map[string]any{"Out": filepath.Join(dir, "out"), "Back": filepath.Join(dir, "back"), "Begin": p.begin, "BeginAt": main[0].Copies[0].Entry,
		"Places": places, "Stops": n, "Again": p.again}
	for _, name := range []string{"out", "back"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "conf")
	if err := os.WriteFile(at, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(gdb, append([]string{"-nx", "-batch", "-x", "testdata/values.py", "--args", p.path}, p.args...)...)
	c.Env = append(os.Environ(), "VALUES_CONF="+at)
	var msg strings.Builder
	c.Stdout, c.Stderr = &msg, &msg
	// Whoever opens a pipe for both ends does not wait for the other.
	out, err1 := os.OpenFile(filepath.Join(dir, "out"), os.O_RDWR, 0)
	back, err2 := os.OpenFile(filepath.Join(dir, "back"), os.O_RDWR, 0)
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer back.Close()
	over := make(chan error, 1)
	go func() {
		over <- c.Wait()
		fmt.Fprintln(out, "{}")
	}()
	if p.work != nil {
		go p.work()
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	var of *process
	seen := 0
	for lines.Scan() {
		var s stop
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.PID == 0 {
			break
		}
		if of == nil {
			of = openProcess(t, s.PID)
		}
		see(of, &s)
		seen++
		fmt.Fprintln(back, "on")
	}
	if err := <-over; seen == 0 || strings.Contains(msg.String(), "Traceback") {
		t.Fatalf("%d stops, %v\n%s", seen, err, msg.String())
	}
}

// vector is one of a stop's vector registers.
func (s *stop) vector(n int) (v [16]byte, err error) {
	binary.LittleEndian.PutUint64(v[:], s.Vectors[2*n])
	binary.LittleEndian.PutUint64(v[8:], s.Vectors[2*n+1])
	return v, nil
}

// regs are a stop's registers.
func (s *stop) regs() *arch.Regs {
	var out arch.Regs
	for name, v := range s.Regs {
		if r, ok := arch.AMD64.RegByName(name); ok {
			out[r] = v
		}
	}
	out[arch.AMD64.ThreadPtr] = s.Regs["fs_base"]
	return &out
}

// read is what a probe at a stop would have of an expression.
func (p *process) read(s *stop, expr string) (event.Value, error) {
	p.asked = false
	sp, err := spec.Options{Dialect: spec.Process, Source: true}.Parse("p 0x1 v=" + expr)
	if err != nil {
		return event.Value{}, err
	}
	loc, _ := p.space.At(arch.Addr(s.PC))
	args, err := bind.Args(sp, bind.SiteAt(arch.AMD64, loc, source.Point{}), false)
	if err != nil {
		return event.Value{}, err
	}
	c, err := event.Compile(args, arch.AMD64, nil)
	if err != nil {
		return event.Value{}, err
	}
	vs := c.Run(&event.Context{Regs: s.regs(), Mem: p, Vector: s.vector, Entered: func(r arch.Reg) (uint64, bool) { return p.entered(s, r) }})
	if len(vs) != 1 {
		return event.Value{}, fmt.Errorf("it has %d parts", len(vs))
	}
	return vs[0], nil
}

// entered reads a register as it was when the function of a stop was entered.
func (p *process) entered(s *stop, reg arch.Reg) (uint64, bool) {
	p.asked = true
	with, err := bind.EnteredWith(p.space, arch.AMD64, s.Stack, reg)
	if err != nil {
		return 0, false
	}
	c, err := event.Compile(with.Args, arch.AMD64, nil)
	if err != nil {
		return 0, false
	}
	vs := c.Run(&event.Context{Regs: s.regs(), Mem: p})
	for i, v := range vs {
		if v.Fault || i > 0 && arch.Addr(v.Bits) != with.Called[i-1] {
			return 0, false
		}
	}
	return vs[0].Bits, true
}

// compare compares a variable, or a member of it, and says how they differ; "" where they do not.
func (p *process) compare(s *stop, expr string, want told, sums table) []string {
	var out []string
	if want.Members != nil {
		for _, name := range slices.Sorted(maps.Keys(want.Members)) {
			out = append(out, p.compare(s, expr+"."+name, want.Members[name], sums)...)
		}
		return out
	}
	if want.Other != "" || want.Error != "" {
		sums["gdb: "+want.Error+want.Other[:min(len(want.Other), 3)]]++
		return nil
	}
	v, err := p.read(s, expr)
	var said *spec.SyntaxError
	if errors.As(err, &said) && said.Err != nil {
		err = said.Err
	}
	gone := errors.Is(err, source.ErrOptimized)
	differ := func(how string) []string {
		sums["differ: "+how]++
		return append(out, fmt.Sprintf("%s+%#x: %s: %s: have %+v %v, want %+v", s.Func, s.PC, expr, how, v, err, want))
	}
	switch {
	case p.asked && s.Inline: // gdb 13 takes the registers of the function that the copy is in for those of its caller
		sums["passed by a caller, in an inlined copy: not compared"]++
	case p.asked && want.Out && !v.Gone: // of link time optimization's calls gdb does not know which function they are to
		sums["passed by a caller, of whose call gdb knows less"]++
	case want.Out && (gone || v.Gone):
		sums["both: optimized out"]++
	case v.Gone:
		sums["only gdb knows what the caller has passed"]++
		out = append(out, fmt.Sprintf("not read: %s %#x %s: the caller does not tell, want %+v", s.Func, s.PC, expr, want))
	case gone:
		return differ("only we say that it is optimized out")
	case err != nil && want.Out:
		sums["gdb: optimized out, we do not read it"]++
	case err != nil:
		text := err.Error()
		text = text[strings.LastIndex(text, ": ")+1:]
		sums["not read: "+text]++
		out = append(out, fmt.Sprintf("not read: %s %#x %s: %v, want %+v", s.Func, s.PC, expr, err, want))
	case want.Out:
		return differ("only gdb says that it is optimized out")
	case v.Fault || want.Fault != "":
		if v.Fault != (want.Fault != "") {
			return differ("only one can read it")
		}
		sums["same: cannot be read"]++
	default:
		n, _ := strconv.ParseUint(want.N, 10, 64)
		bits := v.Bits
		if v.Size < 8 {
			bits &= 1<<(8*v.Size) - 1
		}
		if n != bits {
			return differ("another value")
		}
		sums["same"]++
		if p.asked {
			sums["the same, as a caller has passed it"]++
		}
	}
	return out
}

// values are the ways in which values.c is compiled. The first ones are all of the gate.
var values = [][]string{
	{"gcc", "-O0", "-g"},
	{"gcc", "-O2", "-g"},
	{"gcc", "-O3", "-gdwarf-4", "-fno-pie", "-no-pie"},
	{"clang", "-O2", "-g"},
	{"gcc", "-O2", "-g", "-flto"},
	{"clang", "-O3", "-g", "-fdebug-types-section"},

	{"gcc", "-Os", "-g", "-fdebug-types-section"},
	{"gcc", "-O2", "-gdwarf-4", "-fdebug-types-section"},
	{"clang", "-Os", "-gdwarf-4", "-fdebug-types-section"},
	{"clang", "-O2", "-g", "-flto", "-fuse-ld=lld"},
}

// TestValuesAsGDB holds that variables have the values that gdb shows, at instructions that nobody has chosen: of a
// small program, or of ORACLE, a program with debug data, called with the words of ORACLE_ARGS, at ORACLE_STOPS places,
// while a shell does ORACLE_WORK; ORACLE_BEGIN is the function that it begins with.
func TestValuesAsGDB(t *testing.T) {
	if path := os.Getenv("ORACLE"); path != "" {
		p := program{path: path, begin: "main", args: strings.Fields(os.Getenv("ORACLE_ARGS"))}
		if w := os.Getenv("ORACLE_WORK"); w != "" {
			p.work = func() { exec.Command("sh", "-c", w).Run() }
		}
		if b := os.Getenv("ORACLE_BEGIN"); b != "" {
			p.begin = b
		}
		n, _ := strconv.Atoi(os.Getenv("ORACLE_STOPS"))
		p.asGDB(t, max(n, 1))
		return
	}
	for i, cc := range values {
		if testing.Short() && !slices.Contains([]int{0, 2, 3, 4}, i) {
			continue // each compiler and version, code that is not optimized, and several units in one
		}
		t.Run(strings.Join(cc, " "), func(t *testing.T) {
			p := program{path: filepath.Join(t.TempDir(), "values"), begin: "main", again: true}
			testprog.Compile(t, p.path, cc, "testdata/values.c", "-lm")
			p.asGDB(t, 60)
		})
	}
}

func (p *program) asGDB(t *testing.T, n int) {
	sums := table{}
	stops := 0
	p.stops(t, n, func(of *process, s *stop) {
		loc, ok := of.space.At(arch.Addr(s.PC))
		if !ok {
			return
		}
		site := bind.SiteAt(arch.AMD64, loc, source.Point{})
		if site.Data == nil {
			return // of a library
		}
		stops++
		if site.Entry && site.Unoptimized {
			sums["stops at the first instruction of code that is not optimized: gdb reads what is not there yet"]++
			return
		}
		ours := map[string]bool{}
		for _, v := range site.Data.Variables(site.At) {
			ours[v.Name] = true
		}
		for _, v := range s.Vars {
			switch {
			case ours[v.Name]:
				for _, d := range of.compare(s, v.Name, v.V, sums) {
					if strings.HasPrefix(d, "not read") {
						t.Log(d)
					} else {
						t.Error(d)
					}
				}
				delete(ours, v.Name)
			case v.V.Out:
				sums["only gdb has the variable, optimized out"]++
			default:
				sums["differ: only gdb has the variable"]++
				t.Errorf("%s+%#x: only gdb has %s: %+v", s.Func, s.PC, v.Name, v.V)
			}
		}
		for name := range ours {
			if v, err := site.Data.Variable(site.At, name); err == nil {
				if l, err := v.Where(); err == nil && l.Memory != nil && l.Memory.Op == source.OpAddr {
					sums["only we have the variable, a static one"]++ // of the function that this one was made of
					continue
				}
			}
			if _, err := of.read(s, name); errors.Is(err, source.ErrOptimized) {
				sums["only we have the variable, optimized out"]++
				continue
			}
			sums["differ: only we have the variable"]++
			t.Errorf("%s+%#x: only we have %s", s.Func, s.PC, name)
		}
	})
	t.Logf("%d stops\n%s", stops, sums)
	if stops < n/2 || sums["same"] < stops {
		t.Errorf("%d stops, %d values are the same", stops, sums["same"])
	}
}
