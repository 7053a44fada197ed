package kernel

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/spec"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

func run(t testing.TB, v *vm.VM, command string) string {
	t.Helper()
	out, err := v.Run(command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGuest boots Debian's kernel, with KASLR, and compares the facts read from its RAM with those
// in its own files.
func TestGuest(t *testing.T) {
	k, err := vm.Fetch("amd64", "")
	if err != nil {
		t.Fatal(err)
	}
	modules := k.Dir + "/lib/modules/" + k.Release + "/kernel/"
	v := vmtest.Boot(t, vm.Config{CPUs: 2, Turns: true, Files: map[string]string{
		"dummy.ko": modules + "drivers/net/dummy.ko", "lru_cache.ko": modules + "lib/lru_cache.ko"}})
	im := bootImage(t, k, arch.AMD64)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *vm.VM, *Kernel, *Image)
	}{
		{"symbols", testSymbols}, {"virtual", testVirtual}, {"blacklist", testBlacklist}, {"patched", testPatched}, {"types", testTypes}, {"file", testFile},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, v, open(t, v), im) })
	}
}

// open opens the guest's kernel from its RAM alone.
func open(t testing.TB, v *vm.VM) *Kernel {
	t.Helper()
	ram, size := openFile(t, v.RAM())
	found, err := Find(ram, size, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := NewPaged(&found[0], ram)
	if err != nil {
		t.Fatal(err)
	}
	live := slices.IndexFunc(found, func(f Found) bool { return f.live(mem) })
	if live < 0 {
		t.Fatal(errNotRunning)
	}
	k, err := Open(found[live].Table, mem, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func openFile(t testing.TB, path string) (*os.File, int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return f, st.Size()
}

// bootImage is the kernel in a guest's boot image.
func bootImage(t testing.TB, kernel *vm.Kernel, a *arch.Arch) *Image {
	t.Helper()
	f, size := openFile(t, kernel.Image())
	im, err := OpenImage(f, size, a)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// sorted is the hash of the lines, sorted as C sorts.
func sorted(lines []string) string {
	slices.Sort(lines)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n")+"\n")))
}

const sortedSum = "LC_ALL=C sort | sha256sum | cut -d' ' -f1"

func kallsyms(k *Kernel) []string {
	var b bytes.Buffer
	k.Table().WriteTo(&b)
	for _, m := range k.Modules() {
		m.Table.WriteTo(&b)
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// Every line of the guest's own /proc/kallsyms, of the kernel and its modules, is
// read from its RAM, and no other; modules come and go.
func testSymbols(t *testing.T, v *vm.VM, k *Kernel, _ *Image) {
	if k.Table().bounds.Start == 0xffffffff81000000 {
		t.Log("KASLR chose the address that the kernel was linked for")
	}
	sameModules := func() {
		t.Helper()
		var lines []string
		for _, m := range k.Modules() {
			lines = append(lines, fmt.Sprintf("%s %d %v %v", m.Name, m.Size, m.State, m.Addr))
		}
		want := run(t, v, `awk '{print $1, $2, $5, $6}' /proc/modules`)
		if got := strings.Join(lines, "\n"); got != strings.TrimSpace(want) {
			t.Errorf("modules:\n%s\nthe guest has\n%s", got, want)
		}
	}
	sameModules()
	run(t, v, "insmod /dummy.ko && insmod /lru_cache.ko")
	loaded, gone, err := k.Update()
	if err != nil || len(loaded) != 2 || len(gone) != 0 {
		t.Fatalf("loaded %v, gone %v, %v", loaded, gone, err)
	}
	sameModules()
	// Beyond these, it names pages with copies of instructions, if it has any.
	if got, want := sorted(kallsyms(k)), strings.TrimSpace(run(t, v, "grep -v __builtin__ /proc/kallsyms | "+sortedSum)); got != want {
		t.Errorf("symbols: %s, the guest has %s (%d lines; the guest has %s)", got, want, len(kallsyms(k)), run(t, v, "wc -l </proc/kallsyms"))
	}
	if _, ok := k.Module("lru-cache"); !ok {
		t.Error("lru-cache is not lru_cache")
	}
	setup := k.Lookup("dummy:dummy_setup")
	if len(setup) != 1 || !k.IsText(setup[0].Addr) || k.Name(setup[0].Addr+1) != fmt.Sprintf("dummy_setup+0x1/0x%x [dummy]", setup[0].Size) {
		t.Errorf("dummy_setup: %v", setup)
	}
	if got := k.Match("dummy:dummy_*"); len(got) < 2 {
		t.Errorf("functions of dummy: %v", got)
	}

	// Without type information struct module is laid out the same.
	head, _ := k.Table().Addr("modules")
	known, err := k.readLayout()
	if err != nil {
		t.Fatal(err)
	}
	guess, err := k.guessLayout(head)
	if err != nil || guess.name != known.name || guess.kallsyms != known.kallsyms || guess.parts[0] != known.parts[0] {
		t.Errorf("guessed %+v, %v; it is %+v", guess, err, known)
	}

	// A module's types: those of its own, on top of the kernel's.
	m, _ := k.Module("dummy")
	types, err := k.ModuleTypes(m)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := types.Params("dummy_setup"); err != nil || len(p) != 1 || p[0].Name != "dev" {
		t.Errorf("parameters of dummy_setup: %v, %v", p, err)
	}

	run(t, v, "rmmod dummy")
	if loaded, gone, err = k.Update(); err != nil || len(loaded) != 0 || len(gone) != 1 || gone[0].Name != "dummy" {
		t.Errorf("after rmmod: loaded %v, gone %v, %v", loaded, gone, err)
	}
	if k.IsText(setup[0].Addr) || k.Lookup("dummy_setup") != nil {
		t.Error("dummy_setup is still there")
	}
	sameModules()
	run(t, v, "rmmod lru_cache")
}

// The kernel is found through its virtual memory as well, as behind a stub that
// has nothing else, and a System.map needs only the slide.
func testVirtual(t *testing.T, _ *vm.VM, k *Kernel, im *Image) {
	r := Piece{k.mem, arch.Range{Start: 0xffffffff80000000, End: 0xffffffffc0000000}}
	live, err := FindRunning(r, r.Size(), arch.AMD64, k.mem)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(live.Table.Symbols(), k.Table().Symbols()) {
		t.Error("virtual and physical memory have different symbols")
	}
	if live.Bias != uint64(r.Start) {
		t.Errorf("bias %#x", live.Bias)
	}

	slide := uint64(k.Table().bounds.Start - im.Table.bounds.Start)
	if !slices.Equal(im.Table.Slide(slide).Symbols(), k.Table().Symbols()) {
		t.Error("the boot image has other symbols")
	}
	elsewhere := *live
	elsewhere.Table = im.Table.Slide(slide + 0x200000)
	if elsewhere.live(k.mem) {
		t.Error("a kernel is taken for running where it is not")
	}
}

// The blacklist is the guest's own, line by line; made from the boot image, it is
// that list as well.
func testBlacklist(t *testing.T, v *vm.VM, k *Kernel, im *Image) {
	list, err := k.Blacklist()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, b := range list {
		lines = append(lines, b.String())
		if b.Reason == "" {
			t.Errorf("%v has no reason", b)
		}
	}
	want := run(t, v, "cat /sys/kernel/debug/kprobes/blacklist")
	if got := strings.Join(lines, "\n") + "\n"; got != want {
		t.Errorf("%d lines, the guest has %d", len(lines), strings.Count(want, "\n"))
		for i, l := range strings.Split(want, "\n") {
			if i >= len(lines) || lines[i] != l {
				t.Fatalf("line %d should be %q", i, l)
			}
		}
	}

	off, err := Open(im.Table, im, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	made, err := off.Blacklist()
	if err != nil {
		t.Fatal(err)
	}
	slide := k.Table().bounds.Start - im.Table.bounds.Start
	var slid []string
	for _, b := range made {
		b.Start, b.End = b.Start+slide, b.End+slide
		slid = append(slid, b.String())
	}
	if sorted(slid) != sorted(lines) {
		t.Errorf("%d entries are made from the image, the guest has %d", len(slid), len(lines))
	}

	at := func(name string) arch.Addr {
		a, ok := k.Table().Addr(name)
		if !ok {
			t.Fatalf("no %s", name)
		}
		return a
	}
	for name, reason := range map[string]string{
		"do_int3": "NOKPROBE", "asm_exc_int3": "it is entry code", "vfs_read": "", "kprobe_ftrace_handler": "NOKPROBE",
	} {
		b, ok := k.Blacklisted(list, at(name))
		if ok != (reason != "") || ok && !strings.Contains(b.Reason, reason) {
			t.Errorf("%s: %v %q", name, ok, b.Reason)
		}
	}
	// A part that was split off a function that is on the list: any such part.
	for _, s := range k.Table().Symbols() {
		base, _, split := strings.Cut(s.Name, ".")
		if !split || !s.Code() || s.Name != base+".cold" {
			continue
		}
		of := k.Lookup(base)
		if len(of) == 0 {
			continue
		}
		_, whole := k.Blacklisted(list, of[0].Addr)
		if _, part := k.Blacklisted(list, s.Addr); whole && !part {
			t.Errorf("%s can be probed, %s cannot", s.Name, base)
		}
	}
}

// Text that the kernel patches: ftrace's sites are the functions that the guest can trace, the
// tables of the boot image equal those in memory, and the guest's own probes are seen.
func testPatched(t *testing.T, v *vm.VM, k *Kernel, im *Image) {
	sites, err := k.Sites()
	if err != nil {
		t.Fatal(err)
	}
	off, err := Open(im.Table, im, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	cold, err := off.Sites()
	if err != nil {
		t.Fatal(err)
	}
	slide := k.Table().bounds.Start - im.Table.bounds.Start
	hot, count := map[Site]bool{}, map[Owner]int{}
	var traced []string
	for _, s := range sites {
		if _, _, ok := k.Table().At(s.Addr); ok { // not a module's
			count[s.Owner]++
		}
		s.Len = 0 // the tables say where, and of jump labels the text says how long
		hot[s] = true
		if s.Owner == Ftrace {
			sym, off, _ := k.At(s.Addr)
			if name := sym.Name; off > 0 { // of a weak function that another one replaced
				traced = append(traced, fmt.Sprintf("__ftrace_invalid_address___%d", off))
			} else if sym.Module != "" {
				traced = append(traced, name+" ["+sym.Module+"]")
			} else {
				traced = append(traced, name)
			}
		}
	}
	if got, want := sorted(traced), strings.TrimSpace(run(t, v, "cat /sys/kernel/tracing/available_filter_functions | "+sortedSum)); got != want {
		t.Errorf("ftrace: %d functions; the guest has %s", len(traced), run(t, v, "wc -l </sys/kernel/tracing/available_filter_functions"))
	}
	for _, s := range cold {
		count[s.Owner+" in the image"]++
		s.Addr, s.Len = s.Addr+slide, 0
		switch s.Owner {
		case Ftrace, JumpLabel, StaticCall, Bug:
			if !hot[s] {
				t.Errorf("%s at %s is in the image only", s.Owner, k.Name(s.Addr))
			}
		}
	}
	for _, o := range []Owner{Ftrace, JumpLabel, StaticCall, Bug} {
		if count[o] < 1000 || count[o] != count[o+" in the image"] {
			t.Errorf("%s: %d sites, %d in the image", o, count[o], count[o+" in the image"])
		}
	}
	for _, o := range []Owner{Alternative, Paravirt, SMPLock} {
		if count[o] != 0 || count[o+" in the image"] < 1000 {
			t.Errorf("%s: %d sites, %d in the image", o, count[o], count[o+" in the image"])
		}
	}

	// All instructions that the tables are about are of the kind that they should be.
	text := map[Owner][]string{
		Ftrace:     {"0f1f440000", "e8"},
		JumpLabel:  {"0f1f440000", "e9", "eb", "6690"},
		StaticCall: {"e8", "e9", "0f1f440000", "2e2e2e31c0", "c3cccccccc", "c3", "66666690", "b8"},
		Bug:        {"0f0b"},
		Dispatcher: {"0f1f440000", "e9"},
	}
	for _, s := range sites {
		b := make([]byte, 5)
		if err := k.mem.ReadAt(s.Addr, b); err != nil {
			t.Fatal(err)
		}
		if hex := fmt.Sprintf("%x", b); !slices.ContainsFunc(text[s.Owner], func(p string) bool { return strings.HasPrefix(hex, p) }) {
			t.Errorf("%s at %s is %s", s.Owner, k.Name(s.Addr), hex)
		}
	}

	// Exception tables: both ends are text, and a copy from user space has one.
	fixups, err := k.Fixups()
	if err != nil || len(fixups) < 100 {
		t.Fatalf("%d fixups, %v", len(fixups), err)
	}
	for _, f := range fixups {
		if !k.IsText(f.Insn) || !k.IsText(f.Fixup) {
			t.Errorf("fixup %+v", f)
		}
	}
	one := fixups[len(fixups)/2]
	if in, err := k.FixupsIn(one.Insn, one.Insn+1); err != nil || len(in) == 0 || in[0] != one {
		t.Errorf("fixups at %v: %v, %v", one.Insn, in, err)
	}
	if in, err := k.FixupsIn(one.Insn+1, one.Insn+1); err != nil || len(in) != 0 {
		t.Errorf("fixups in no byte: %v, %v", in, err)
	}

	// The guest probes itself.
	const events = "/sys/kernel/tracing/kprobe_events"
	read, _ := k.Table().Addr("vfs_read")
	foreign := func(off, n arch.Addr) string {
		t.Helper()
		sites, err := k.Foreign(read+off, read+off+n)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range sites {
			out = append(out, fmt.Sprintf("%s+%d/%d", s.Owner, s.Addr-read, s.Len))
		}
		return strings.Join(out, " ")
	}
	if got := foreign(0, 1); got != "ftrace+0/5" {
		t.Errorf("at vfs_read: %s", got)
	}
	if got := foreign(5, 4); got != "" {
		t.Errorf("behind it: %s", got)
	}
	run(t, v, "echo 'p:ours vfs_read+5' >"+events+" && echo 1 >/sys/kernel/tracing/events/kprobes/ours/enable")
	if got := foreign(0, 6); got != "ftrace+0/5 kprobe+5/1" && got != "ftrace+0/5 kprobe+5/5" {
		t.Errorf("with a probe: %s", got)
	}
	run(t, v, "echo 0 >/sys/kernel/tracing/events/kprobes/ours/enable && echo >"+events)
	if got := foreign(0, 6); got != "ftrace+0/5" {
		t.Errorf("without it: %s", got)
	}
}

// The type information is the guest's own, byte by byte, and its offsets in structures are true of
// memory.
func testTypes(t *testing.T, v *vm.VM, k *Kernel, _ *Image) {
	at, _ := k.Table().between("__start_BTF", "__stop_BTF")
	raw := make([]byte, at.End-at.Start)
	if err := k.mem.ReadAt(at.Start, raw); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(run(t, v, "sha256sum /sys/kernel/btf/vmlinux"))[0]
	if got := fmt.Sprintf("%x", sha256.Sum256(raw)); got != want {
		t.Errorf("BTF: %s, the guest has %s", got, want)
	}
	types, err := k.Types()
	if err != nil {
		t.Fatal(err)
	}
	task, _ := k.Table().Addr("init_task")
	sp, err := spec.Options{Dialect: spec.Kprobes, Types: true}.Parse(
		"p wake_up_new_task p->comm pid=p->pid p->real_parent->comm:string user=p->real_parent->nsproxy->uts_ns->name.sysname")
	if err != nil {
		t.Fatal(err)
	}
	args, err := types.Bind(sp, "wake_up_new_task", 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"swapper/0", "0", "swapper/0", "Linux"} {
		// The address that the fetch reads when the first argument is init_task.
		view := k.view()
		var read func(f *spec.Fetch) arch.Addr
		read = func(f *spec.Fetch) arch.Addr {
			if f.Op == spec.ArgN && f.N == 1 {
				return task
			}
			return view.ptr(read(f.Inner) + arch.Addr(f.N))
		}
		place := read(args[i].Fetch.Inner) + arch.Addr(args[i].Fetch.N)
		got := fmt.Sprint(view.u32(place))
		if args[i].Type.Base == spec.String {
			got = view.cstring(place, 16)
		}
		if view.err != nil || got != want {
			t.Errorf("%v is %q, not %q; %v", sp.Args[i].Fetch, got, want, view.err)
		}
	}
}

// Kernels of other machines, one of them big-endian, without symbols of data.
func TestForeign(t *testing.T) {
	testprog.Long(t, "it fetches kernels beside the gate's own")
	machines := foreignMachines
	if testing.Short() {
		machines = machines[:1]
	}
	for _, a := range machines {
		t.Run(a.Name, func(t *testing.T) {
			kernel, err := vm.Fetch(a.Name, "")
			if err != nil {
				t.Fatal(err)
			}
			im := bootImage(t, kernel, a)
			checkTable(t, im.Table)
			if n := len(im.Table.Symbols()); n < 30_000 {
				t.Errorf("%d symbols", n)
			}
			if _, err := (&Kernel{arch: a, mem: im, table: im.Table}).Sites(); !errors.Is(err, ErrNoData) {
				t.Errorf("without symbols of data nothing can be known of patched text, but %v", err)
			}
			k, err := Open(im.Table, im, a)
			if err != nil {
				t.Fatal(err)
			}
			// One of them has type information, though no symbols lead to it.
			types, err := k.Types()
			if a.Name == "s390x" {
				if !errors.Is(err, ErrNoTypes) {
					t.Errorf("types: %v", err)
				}
			} else if p, err := types.Params("vfs_read"); err != nil || len(p) != 4 || p[2].Name != "count" {
				t.Errorf("parameters of vfs_read: %v, %v", p, err)
			}
			if !testing.Short() {
				sameAsGuest(t, im, a)
			}
		})
	}
}

// sameAsGuest boots a guest and compares its own files, its RAM and its image.
func sameAsGuest(t *testing.T, im *Image, a *arch.Arch) {
	v := vmtest.Boot(t, vm.Config{Machine: a.Name})
	ram, size := openFile(t, v.RAM())
	found, err := Find(ram, size, a)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Errorf("%d kernels", len(found))
	}
	var b bytes.Buffer
	found[0].Table.WriteTo(&b)
	want := strings.TrimSpace(run(t, v, `grep -v '\[' /proc/kallsyms | `+sortedSum))
	if got := sorted(strings.Split(strings.TrimSpace(b.String()), "\n")); got != want {
		t.Errorf("%d symbols: %s, the guest has %s", len(found[0].Table.Symbols()), got, want)
	}
	slide := found[0].Table.bounds.Start - im.Table.bounds.Start
	if !slices.Equal(im.Table.Slide(uint64(slide)).Symbols(), found[0].Table.Symbols()) {
		t.Error("the boot image has other symbols")
	}
	// The image's text is where its symbols say: as in RAM, behind ftrace's part.
	read, ok := im.Table.Addr("vfs_read")
	code := make([]byte, 24)
	if err := im.ReadAt(read+8, code); !ok || err != nil {
		t.Fatal(err)
	}
	if !inRAM(ram, size, code) {
		t.Errorf("vfs_read+8 of the image, %x, is not in RAM", code)
	}
}

// inRAM tells whether some bytes are anywhere in RAM.
func inRAM(ram io.ReaderAt, size int64, want []byte) bool {
	b := make([]byte, 1<<20)
	for pos := int64(0); pos < size; pos += int64(len(b)) - 64 {
		n, _ := ram.ReadAt(b, pos)
		if bytes.Contains(b[:n], want) {
			return true
		}
	}
	return false
}
