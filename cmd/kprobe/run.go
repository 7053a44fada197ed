package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/btftext"
	"kprobe/internal/host"
	"kprobe/internal/missed"
	"kprobe/internal/proc"
	"kprobe/target/ptrace"
)

// runRequest is what the verb run is asked to do.
type runRequest struct {
	request
	duration time.Duration
	sets     []string // NAME=VALUE
	at       []string // PROGRAM=PLACE
	entries  []string // MAP=NUMBER
	tails    []string // MAP[INDEX]=PROGRAM
	inner    []string // MAP[KEY]=NAME
	as       []string // RING=TYPE
	without  []string // programs
	types    []string // files
	unsafe   bool
}

func runCommand() *cobra.Command {
	var r runRequest
	c := &cobra.Command{
		Use:   "run {-p PID | -k PLACE} [-d TIME] OBJECT",
		Short: "Run eBPF programs of an object inside a process, or a kernel",
		Long: `Load an object that clang -target bpf has made, place its programs where their
sections say (uprobe/libc.so.6:malloc, uretprobe/..., usdt/PATH:PROVIDER:NAME, in a kernel kprobe/vfs_read),
or --at does, and print what they print with bpf_printk, and the records that they put into ring buffers. In the end, after TIME or at
an interrupt (^C), print their maps, those of threads added up, and their global
variables: of both, what is not 0.`,
		Example: `  kprobe run -p 1234 -d 10s hist.bpf.o
  kprobe run -p 1234 --set least=1000 hist.bpf.o
  kprobe run -p 1234 --at enter=libssl.so.3:SSL_write --entries events=1048576 --as events=event sniff.bpf.o`,
		RunE: func(c *cobra.Command, args []string) error {
			rest, err := r.processes(args)
			if err != nil {
				return err
			}
			if len(r.pids) != 1 && r.kernel.at == "" || len(rest) != 1 {
				return errors.New("one process or kernel and one object: -p PID OBJECT")
			}
			return r.run(c.OutOrStdout(), rest[0])
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.overrideFlag(c)
	c.Flags().DurationVarP(&r.duration, "duration", "d", 0, "end after `TIME`, such as 10s or 1m30s")
	c.Flags().StringArrayVar(&r.at, "at", nil, "place a program where its section does not say: `PROGRAM=PLACE`, several times perhaps")
	c.Flags().StringArrayVar(&r.without, "without", nil, "leave a `PROGRAM` out")
	c.Flags().StringArrayVar(&r.entries, "entries", nil, "give a map as many elements, a ring as many bytes: `MAP=NUMBER`")
	c.Flags().StringArrayVar(&r.tails, "tail", nil, "put a program into a program array: `MAP[INDEX]=PROGRAM`")
	c.Flags().StringArrayVar(&r.inner, "inner", nil, "put a map into a map of maps, a new one perhaps: `MAP[KEY]=NAME`")
	c.Flags().StringArrayVar(&r.as, "as", nil, "print a ring's records as a structure of the object: `RING=TYPE`")
	c.Flags().StringArrayVar(&r.types, "types", nil, "files with debug information, whose types the object may ask for (CO-RE): `FILE`; else those of the process's program")
	c.Flags().BoolVar(&r.unsafe, "unsafe", false, "allow bpf_send_signal and bpf_probe_write_user: programs may send their process signals, and write to its memory")
	c.Flags().StringArrayVar(&r.sets, "set", nil, "begin with a global variable set: `NAME=NUMBER`")
	return c
}

// open opens a session on what is meant.
func (r *runRequest) open(pl *placing) (*kprobe.Session, error) {
	o := &kprobe.Options{Report: report}
	if r.kernel.at != "" {
		return r.kernel.open(pl, o)
	}
	p, err := ptrace.Attach(r.pids[0])
	if err != nil {
		return nil, err
	}
	s, err := pl.open(p, o)
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(p.Close()))
	}
	return s, nil
}

// prepare does what the options say before programs are loaded, and answers where they go.
func (r *runRequest) prepare(c *bpf.Collection) (at []kprobe.Placement, err error) {
	for _, err := range c.Refused {
		report(fmt.Errorf("left out: %w", err))
	}
	for _, m := range c.Maps {
		if m.Pinned {
			report(fmt.Errorf("map %q is pinned in a kernel: here it is this run's own, and empty at first", m.Name))
		}
	}
	if err := c.Leave(r.without...); err != nil {
		return nil, err
	}
	switch {
	case r.unsafe && r.kernel.at != "":
		return nil, errors.New("--unsafe is for a process: programs of a kernel send no signals and write nothing")
	case r.unsafe:
		c.AllowWrites()
		if err := c.AllowSignals(); err != nil {
			return nil, err
		}
	}
	for _, place := range r.at {
		program, where, ok := strings.Cut(place, "=")
		if !ok || where == "" {
			return nil, fmt.Errorf("--at %s: it must be PROGRAM=PLACE", place)
		}
		at = append(at, kprobe.Placement{Program: program, Place: where})
	}
	for _, inner := range r.inner {
		outer, key, name, err := element("--inner", inner)
		if err != nil {
			return nil, err
		}
		if err := c.SetInner(outer, key, name); err != nil {
			return nil, err
		}
	}
	for _, entries := range r.entries {
		name, value, _ := strings.Cut(entries, "=")
		n, err := strconv.ParseUint(value, 0, 32)
		if err != nil {
			return nil, fmt.Errorf("--entries %s: it must be MAP=NUMBER", entries)
		}
		if err := c.SetEntries(name, uint32(n)); err != nil {
			return nil, err
		}
	}
	for _, tail := range r.tails {
		array, index, program, err := element("--tail", tail)
		if err != nil {
			return nil, err
		}
		if err := c.SetTail(array, index, program); err != nil {
			return nil, err
		}
	}
	for _, set := range r.sets {
		name, value, _ := strings.Cut(set, "=")
		n, err := strconv.ParseInt(value, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("--set %s: it must be NAME=NUMBER", set)
		}
		if err := c.Set(name, int(n)); err != nil {
			return nil, err
		}
	}
	var open []error // all of them at once: each wants an option
	for _, m := range c.Maps {
		open = append(open, m.Check())
	}
	if err := errors.Join(open...); err != nil {
		return nil, err
	}
	for _, m := range c.Maps {
		if m.OfMaps() && len(m.Declared.Entries) == 0 {
			report(fmt.Errorf("no map is in the map of maps %q: --inner %s[KEY]=NAME puts one there", m.Name, m.Name))
		}
		if m.OfPrograms() && len(m.Declared.Entries) == 0 {
			report(fmt.Errorf("no program is in the program array %q, so that tail calls go on behind: --tail %s[INDEX]=PROGRAM puts one there", m.Name, m.Name))
		}
	}
	return at, nil
}

// element reads MAP[INDEX]=NAME.
func element(option, text string) (m string, index uint32, name string, err error) {
	where, name, _ := strings.Cut(text, "=")
	m, key, _ := strings.Cut(strings.TrimSuffix(where, "]"), "[")
	n, err := strconv.ParseUint(key, 0, 32)
	if err != nil {
		return "", 0, "", fmt.Errorf("%s %s: it must be MAP[NUMBER]=NAME", option, text)
	}
	return m, uint32(n), name, nil
}

// records are the types that rings' records are printed as: the structures that the object says their values are, but for
// what the options say.
func (r *runRequest) records(c *bpf.Collection) (map[string]btf.Type, error) {
	as := map[string]btf.Type{}
	for _, m := range c.Maps {
		if _, ok := m.Value.(*btf.Struct); ok && (m.Type == bpf.RingBuf || m.Type == bpf.PerfEventArray) {
			as[m.Name] = m.Value
		}
	}
	for _, a := range r.as {
		name, typ, _ := strings.Cut(a, "=")
		if c.Map(name) == nil {
			return nil, fmt.Errorf("--as %s: no map %q", a, name)
		}
		t, err := c.Type(typ)
		if err != nil {
			return nil, fmt.Errorf("--as %s: %w", a, err)
		}
		as[name] = t
	}
	return as, nil
}

// load reads the object, beside the files whose types it may ask for.
func (r *runRequest) load(object io.ReaderAt) (*bpf.Collection, error) {
	var types []io.ReaderAt
	add := func(f *os.File, err error) error {
		if err == nil {
			types = append(types, f)
		}
		return err
	}
	defer func() {
		for _, f := range types {
			f.(*os.File).Close()
		}
	}()
	for _, name := range r.types {
		if err := add(os.Open(name)); err != nil {
			return nil, fmt.Errorf("--types: %w", err)
		}
	}
	if len(types) == 0 && r.kernel.at == "" {
		_ = add(proc.Process(r.pids[0]).Open("exe")) // that it is not there is found out soon enough
	}
	return bpf.Load(object, types...)
}

// loadKnown loads programs, but for those that use what nobody knows of the target's types, as long as nobody placed them, and
// there are others.
func loadKnown(s *kprobe.Session, c *bpf.Collection, at []kprobe.Placement) (*kprobe.Programs, error) {
	for {
		programs, err := s.Load(c)
		lacks := (*bpf.VerifyError)(nil)
		if !errors.As(err, &lacks) || !lacks.Lacks || len(c.Programs) == 1 ||
			slices.ContainsFunc(at, func(p kprobe.Placement) bool { return p.Program == lacks.Program }) {
			return programs, err
		}
		report(fmt.Errorf("left out: %w", err))
		if err := c.Leave(lacks.Program); err != nil {
			return nil, err
		}
	}
}

// elsewhere says what to do about a program that cannot be where it is to be.
func (r *runRequest) elsewhere(err error, c *bpf.Collection) error {
	if strings.Contains(err.Error(), "--at") || !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	hint := ""
	if r.kernel.at == "" && slices.ContainsFunc(c.Programs, func(p *bpf.Program) bool {
		return strings.HasPrefix(p.Section, "kprobe") || strings.HasPrefix(p.Section, "kretprobe")
	}) {
		hint = "; a kernel's functions are in a kernel, -k PLACE"
	}
	return fmt.Errorf("%w (--at PROGRAM=PLACE places a program elsewhere, --without PROGRAM leaves it out%s)", err, hint)
}

func (r *runRequest) run(w io.Writer, object string) (err error) {
	f, err := os.Open(object)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := r.load(f)
	if err != nil {
		return fmt.Errorf("%s: %w", object, err)
	}
	at, err := r.prepare(c)
	if err != nil {
		return err
	}
	as, err := r.records(c)
	if err != nil {
		return err
	}
	signals := catchSignals()
	pl := placingUntil(signals)
	s, err := r.open(pl)
	if err != nil {
		return pl.done(err)
	}
	defer func() {
		early := lasted(s)
		if err = errors.Join(err, ignoreClosed(s.Close())); err == nil {
			err = early
		}
	}()
	programs, err := loadKnown(s, c, at)
	if err != nil {
		return pl.done(err)
	}
	probes, err := programs.Attach(at...)
	if err = pl.done(err); err != nil {
		return r.elsewhere(err, c)
	}
	for _, name := range programs.Unplaced(at...) {
		report(fmt.Errorf("program %q is nowhere: its section, %s, names no place; --at %s=PLACE does", name, c.Program(name).Section, name))
	}
	for _, name := range s.Pending() {
		report(fmt.Errorf("waiting for %s, which is not mapped yet", name))
	}
	rings, err := ringsOf(c, programs, as)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	send := func() error { return nil }
	if r.unsafe {
		if send, err = r.sender(programs); err != nil {
			return err
		}
	}
	go printAll(w, s, rings, send, over)
	(&traceRequest{duration: r.duration}).wait(s.Done(), nil, signals)
	over <- struct{}{} // it prints once more, and answers by closing
	<-over
	tellLost(missed.Of(probes), rings)
	return errors.Join(writeMaps(w, s, c, programs), writeVars(w, c, programs))
}

// tellLost says which hits no program has seen, and which records found no room.
func tellLost(n uint64, rings []ring) {
	if n > 0 {
		fmt.Fprint(os.Stderr, missed.Line(n))
	}
	for _, r := range rings {
		if n := r.Lost(); n > 0 {
			fmt.Fprintf(os.Stderr, "Lost %d records of map %q: --entries gives it more room\n", n, r.name)
		}
	}
}

// ring is a map that programs put records into.
type ring struct {
	name string
	as   func(size int) btf.Type // of a record of that size, nil where none is known
	*bpf.Reader
}

// inferred answers what the records of a ring are of which nothing is said: the structure that the object must mean, which is told,
// since another one may be meant. A record that is no longer than a number is a number.
func inferred(c *bpf.Collection, name string) func(size int) btf.Type {
	known := map[int]btf.Type{}
	return func(size int) btf.Type {
		t, asked := known[size]
		if asked || size <= 8 {
			return t
		}
		t, err := c.Record(size)
		if err != nil {
			report(err)
		} else if t != nil {
			report(fmt.Errorf("map %q: its records of %d bytes are printed as %s, the only one of that size; --as %s=TYPE says otherwise", name, size, structureName(t), name))
		}
		known[size] = t
		return t
	}
}

func structureName(t btf.Type) string {
	if t.TypeName() == "" {
		return "a structure without a name"
	}
	return "struct " + t.TypeName()
}

func ringsOf(c *bpf.Collection, programs *kprobe.Programs, as map[string]btf.Type) (rings []ring, err error) {
	for _, spec := range c.Maps {
		if spec.Type != bpf.RingBuf && spec.Type != bpf.PerfEventArray || spec.Name == bpf.SignalsMap {
			continue
		}
		m, err := programs.Map(spec.Name)
		if err != nil {
			return nil, err
		}
		r, err := bpf.NewReader(m)
		if err != nil {
			return nil, err
		}
		of := inferred(c, spec.Name)
		if t := as[spec.Name]; t != nil {
			of = func(int) btf.Type { return t }
		}
		rings = append(rings, ring{spec.Name, of, r})
	}
	return rings, nil
}

// printRecords prints the records that are there.
func (r ring) printRecords(w io.Writer) error {
	for {
		rec, more, err := r.Read()
		if err != nil || !more {
			return err
		}
		fmt.Fprintf(w, "%s: %s\n", r.name, btftext.Format(rec.Data, r.as(len(rec.Data))))
	}
}

// sender answers what sends the signals that programs ask for.
func (r *runRequest) sender(programs *kprobe.Programs) (send func() error, err error) {
	m, err := programs.Map(bpf.SignalsMap)
	if err != nil {
		return nil, err
	}
	asked, err := bpf.NewReader(m)
	if err != nil {
		return nil, err
	}
	return func() error {
		for {
			rec, more, err := asked.Read()
			if err != nil || !more {
				return err
			}
			sig, err := bpf.ParseSignal(rec.Data)
			if err == nil {
				err = host.Signal(r.pids[0], sig.Thread, syscall.Signal(sig.Number))
			}
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}, nil
}

// printAll prints what programs print, and sends the signals that they ask for, until it is asked to end.
func printAll(w io.Writer, s *kprobe.Session, rings []ring, send func() error, over chan struct{}) {
	defer close(over)
	for last := false; !last; {
		select {
		case <-time.After(pause):
		case <-over:
			last = true
		}
		if err := send(); err != nil {
			report(fmt.Errorf("a signal that a program asks for is not sent: %w", err))
		}
		lines, err := s.Printed()
		if err != nil {
			report(err)
		}
		for _, l := range lines {
			who := "task" // which may be over by now
			if !s.OnCPUs() {
				who = s.Comm(int(l.Thread))
			}
			fmt.Fprintf(w, "%s-%d: %s\n", who, l.Thread, strings.TrimSuffix(l.String(), "\n"))
		}
		for _, r := range rings {
			if err := r.printRecords(w); err != nil {
				report(fmt.Errorf("map %q: %w", r.name, err))
			}
		}
	}
}

// writeVars prints the global variables that can change and are not 0.
func writeVars(w io.Writer, c *bpf.Collection, programs *kprobe.Programs) error {
	for _, v := range c.Vars {
		if v.Map.Flags&bpf.FlagReadOnly != 0 {
			continue
		}
		m, err := programs.Map(v.Map.Name)
		if err != nil {
			return err
		}
		value, err := v.In(m)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(value, func(b byte) bool { return b != 0 }) {
			if _, err := fmt.Fprintf(w, "%s = %s\n", v.Name, btftext.Format(value, v.Type)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeMaps prints the elements of all maps that have any.
func writeMaps(w io.Writer, s *kprobe.Session, c *bpf.Collection, programs *kprobe.Programs) error {
	for _, spec := range c.Maps {
		if spec.Type == bpf.RingBuf || spec.Type == bpf.PerfEventArray || strings.HasPrefix(spec.Name, ".") || strings.HasPrefix(spec.Name, "__bpf_usdt_") {
			continue
		}
		m, err := programs.Map(spec.Name)
		if err != nil {
			return err
		}
		var lines []string
		for key, threads := range m.All() {
			value := threads[0]
			if len(threads) > 1 {
				value = bpf.Sum(threads)
			}
			if slices.ContainsFunc(value, func(b byte) bool { return b != 0 }) {
				line := btftext.Format(value, spec.Value)
				if spec.Type == bpf.StackTrace {
					line = stackText(s, value)
				}
				if key != nil {
					line = btftext.Format(key, spec.Key) + ": " + line
				}
				lines = append(lines, "  "+line+"\n")
			}
		}
		if len(lines) > 0 {
			if _, err := fmt.Fprintf(w, "%s\n%s", spec.Name, strings.Join(lines, "")); err != nil {
				return err
			}
		}
	}
	return nil
}

// stackText are the functions of a stack trace map's value, innermost first.
func stackText(s *kprobe.Session, value []byte) string {
	var names []string
	for ; len(value) >= 8; value = value[8:] {
		pc := binary.LittleEndian.Uint64(value)
		if pc == 0 {
			break
		}
		name := fmt.Sprintf("%#x", pc)
		if loc, ok := s.Symbols().At(arch.Addr(pc)); ok {
			name = loc.String()
		}
		names = append(names, name)
	}
	return strings.Join(names, " < ")
}
