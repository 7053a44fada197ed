package bpf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/internal/testprog"
)

// clang compiles a C file for the machine's version ("v2", "v3").
func clang(t testing.TB, file, version string) []byte {
	t.Helper()
	return testprog.CompileBPF(t, file, "-mcpu="+version)
}

func load(t testing.TB, file, version string) *bpf.Collection {
	t.Helper()
	c, err := bpf.Load(bytes.NewReader(clang(t, file, version)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// loaded is a collection with its maps and its proved programs.
type loaded struct {
	*bpf.Collection
	seg    *bpf.Segment
	proofs map[string]*bpf.Proof
	vm     *bpf.VM
}

func verified(t testing.TB, c *bpf.Collection) *loaded {
	t.Helper()
	l := &loaded{Collection: c, proofs: map[string]*bpf.Proof{}}
	for _, p := range c.Programs {
		proof, err := verify.Program(p)
		if err != nil {
			t.Fatalf("%v\n%s", err, bpftest.Listing(p))
		}
		l.proofs[p.Name] = proof
		l.vm = bpftest.Machine(t, proof)
	}
	l.seg = l.vm.Segment
	return l
}

// run runs one of the programs with registers by their names.
func (l *loaded) run(t testing.TB, name string, regs map[string]uint64) bpf.Result {
	t.Helper()
	ctx := make([]byte, bpf.AMD64.Size())
	for reg, v := range regs {
		binary.LittleEndian.PutUint64(ctx[8*slices.Index(bpf.AMD64.Regs, reg):], v)
	}
	l.vm.Proof = l.proofs[name]
	res, err := l.vm.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// mapOf is a map of the collection by its name.
func (l *loaded) mapOf(t testing.TB, name string) *bpf.Map {
	t.Helper()
	k := slices.IndexFunc(l.Maps, func(m *bpf.MapSpec) bool { return m.Name == name })
	if k < 0 {
		t.Fatalf("no map %q", name)
	}
	return l.seg.Map(k)
}

func (l *loaded) u64(t testing.TB, name string, key []byte) uint64 {
	t.Helper()
	v, err := l.mapOf(t, name).Lookup(key)
	if err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(v)
}

func key4(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func key8(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

var versions = []string{"v2", "v3"}

// A latency histogram runs unchanged as clang compiles it.
func TestHistogram(t *testing.T) {
	for _, version := range versions {
		l := verified(t, load(t, "testdata/hist.bpf.c", version))
		p := l.Program("leave")
		if p.Kind != bpf.Kretprobe || p.Attach != "libc.so.6:malloc" || p.Section != "uretprobe/libc.so.6:malloc" {
			t.Errorf("%+v", p)
		}
		if len(p.Lines) == 0 || !strings.Contains(p.Lines[0].Text, "hist.bpf.c:") {
			t.Errorf("lines %v", p.Lines)
		}
		clock := uint64(0)
		l.vm.Env.Now = func(int32) uint64 { return clock }
		for _, delta := range []uint64{1, 2, 3, 1000, 1023, 1 << 40, 0} {
			l.run(t, "enter", nil)
			clock += delta
			l.run(t, "leave", nil)
		}
		l.run(t, "leave", nil) // without an entry
		for slot, want := range map[uint32]uint64{0: 1, 1: 2, 9: 2, 40: 1, 2: 0} {
			if got := l.u64(t, "hist", key4(slot)); got != want {
				t.Errorf("%s: slot %d: %d, want %d", version, slot, got, want)
			}
		}
		if total := l.u64(t, ".bss", key4(0)); total != 6 {
			t.Errorf("%s: total %d", version, total)
		}
		if _, err := l.mapOf(t, "start").Lookup(key4(1001)); err == nil {
			t.Errorf("%s: the entry is still there", version)
		}
	}
}

// Global variables are set before loading, and read while programs work.
func TestVariables(t *testing.T) {
	c := load(t, "testdata/hist.bpf.c", "v3")
	for _, bad := range []struct {
		name  string
		value any
		want  string
	}{
		{"leest", 1, `no global variable "leest"`},
		{"least", uint32(1), "has 8 bytes, its value 4"},
		{"least", "text", "least"},
	} {
		if err := c.Set(bad.name, bad.value); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s = %v: %v", bad.name, bad.value, err)
		}
	}
	for name, value := range map[string]any{"least": 100, "total": uint64(7)} {
		if err := c.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	l := verified(t, c)
	clock := uint64(0)
	l.vm.Env.Now = func(int32) uint64 { return clock }
	for _, delta := range []uint64{99, 100, 101} {
		l.run(t, "enter", nil)
		clock += delta
		l.run(t, "leave", nil)
	}
	b, err := c.Var("total").In(l.mapOf(t, ".bss"))
	if err != nil || binary.LittleEndian.Uint64(b) != 7+2 {
		t.Errorf("total: % x, %v", b, err)
	}
}

// An object that needs a thing which is not here is refused, with what to do instead.
func TestRefusedObjects(t *testing.T) {
	const head = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n"
	for _, tt := range []struct{ name, text, want string }{
		{"callback of a variable", `static long add(__u32 i, void *sum) { return 0; }
static long sub(__u32 i, void *sum) { return 1; }
SEC("uprobe/f") int p(void *ctx) { void *f = bpf_get_prandom_u32() & 1 ? (void *)add : (void *)sub; return bpf_loop(9, f, 0, 0); }`, "name it in the call"},
		{"kernel's function", `extern int bpf_arena_alloc(int) __ksym; SEC("uprobe/f") int p(void *ctx) { return bpf_arena_alloc(1); }`, "call of the kernel's function bpf_arena_alloc: there is no kernel here"},
		{"map of maps that is changed", `struct in { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); } in SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS); __uint(max_entries, 1); __uint(key_size, 4); __array(values, struct in); } out SEC(".maps") = { .values = { &in } };
SEC("uprobe/f") int p(void *ctx) { __u32 zero = 0; return bpf_map_delete_elem(&out, &zero); }`, `map_delete_elem does not work on map "out", which is a map of maps`},
		{"helper", `SEC("uprobe/f") int p(void *ctx) { return bpf_get_numa_node_id() != 0; }`, "helper 42 (bpf_get_numa_node_id) is not supported here"},
		{"format that is not known", `char b[9]; SEC("uprobe/f") int p(void *ctx) { __u64 v[1] = {0}; char f[4] = "%d"; return bpf_snprintf(b, 9, f, v, 8); }`, "bpf_snprintf: its format is not to be seen right before: a constant"},
		{"conversion", `char b[9]; SEC("uprobe/f") int p(void *ctx) { static const char f[] = "%#x"; __u64 v[1] = {0}; return bpf_snprintf(b, 9, f, v, 8); }`, "bpf_snprintf: the conversion %#x is not there: %d %i"},
		{"conversion of a symbol", `char b[9]; SEC("uprobe/f") int p(void *ctx) { static const char f[] = "%pS"; __u64 v[1] = {0}; return bpf_snprintf(b, 9, f, v, 8); }`, "bpf_snprintf: the conversion %pS is not there: %d %i"},
		{"too few values", `char b[9]; SEC("uprobe/f") int p(void *ctx) { static const char f[] = "%d %d"; __u64 v[1] = {0}; return bpf_snprintf(b, 9, f, v, 8); }`, "its format has 2 conversions, and it is given 8 bytes of values, 8 for each"},
		{"buffer that is too small", `char b[9]; SEC("uprobe/f") int p(void *ctx) { static const char f[] = "%d"; __u64 v[1] = {0}; return bpf_snprintf(b, 10, f, v, 8); }`, "beyond the value of map \".bss\""},
		{"text on the stack", `char b[9]; SEC("uprobe/f") int p(void *ctx) { static const char f[] = "%s"; char c[8] = "abcdefg"; __u64 v[1] = {(__u64)c}; return bpf_snprintf(b, 9, f, v, 8); }`, "a text that a format prints is to be in a global variable or a map"},
		{"tail call", `int p(void *ctx);
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 1); __uint(key_size, 4); __array(values, int(void *)); } next SEC(".maps") = { .values = { (void *)&p } };
SEC("uprobe/f") int p(void *ctx) { bpf_tail_call(ctx, &next, 0); return 0; }`, "p leads back to itself"},
		{"queue", `struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 1); __type(value, __u64); } q SEC(".maps");
SEC("uprobe/f") int p(void *ctx) { __u32 zero = 0; return bpf_map_lookup_elem(&q, &zero) != 0; }`, "does not work on map \"q\", which is a queue"},
		{"queue of great values", `struct big { char b[600]; };
struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 1); __type(value, struct big); } q SEC(".maps");
struct big b; SEC("uprobe/f") int p(void *ctx) { return bpf_map_pop_elem(&q, &b); }`, "values of 1 to 512 bytes"},
		{"map that is given by values", `struct bpf_map_def { unsigned int type, key_size, value_size, max_entries; };
struct bpf_map_def m SEC(".maps") = { .type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 8, .max_entries = 1 };
SEC("uprobe/f") int p(void *ctx) { __u32 zero = 0; return bpf_map_lookup_elem(&m, &zero) != 0; }`, "is defined with __uint and __type of bpf_helpers.h"},
		{"kernel's symbol", `extern const int jiffies __ksym; SEC("uprobe/f") int p(void *ctx) { return jiffies; }`, "there is no kernel whose symbols"},
		{"text from the program", `extern int bpf_copy_from_user_str(void *, __u32, const void *, __u64) __ksym; char b[9]; SEC("uprobe/f") int p(void *ctx) { return bpf_copy_from_user_str(b, 9, b, 1); }`, "flags other than 0 are not supported"},
		{"another runtime's helper", `static long (*other)(void) = (void *)1017; SEC("uprobe/f") int p(void *ctx) { return other(); }`, "leave the call out, or the program (--without p)"},
	} {
		file := filepath.Join(t.TempDir(), "p.bpf.c")
		if err := os.WriteFile(file, []byte(head+tt.text+"\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := bpf.Load(bytes.NewReader(clang(t, file, "v3")))
		if err == nil {
			_, err = verify.Program(c.Programs[0])
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// An allocation tracker: records, a hash of memory that is not freed yet, stacks.
func TestAllocations(t *testing.T) {
	for _, version := range versions {
		l := verified(t, load(t, "testdata/alloc.bpf.c", version))
		// A stack of two frames in the target.
		l.vm.Env.Read = func(addr uint64, p []byte) error {
			stack := map[uint64][]uint64{0x8000: {0x8100, 0x401111}, 0x8100: {0, 0x402222}}
			if f, ok := stack[addr]; ok && len(p) == 16 {
				binary.LittleEndian.PutUint64(p, f[0])
				binary.LittleEndian.PutUint64(p[8:], f[1])
				return nil
			}
			return os.ErrInvalid
		}
		for _, b := range []struct{ addr, size uint64 }{{0xa0, 10}, {0xb0, 20}, {0, 30}} {
			l.run(t, "malloc_enter", map[string]uint64{"rdi": b.size})
			l.run(t, "malloc_exit", map[string]uint64{"rax": b.addr, "rip": 0x400000, "rbp": 0x8000})
		}
		l.run(t, "free_enter", map[string]uint64{"rdi": 0xa0})
		l.run(t, "free_enter", map[string]uint64{"rdi": 0xdead})

		left := 0
		for key, values := range l.mapOf(t, "blocks").All() {
			left++
			stack := binary.LittleEndian.Uint32(values[0][16:])
			if binary.LittleEndian.Uint64(key) != 0xb0 || binary.LittleEndian.Uint64(values[0]) != 20 {
				t.Errorf("%s: left %x: %x", version, key, values)
			}
			ips, err := l.mapOf(t, "stacks").Lookup(key4(stack))
			if err != nil {
				t.Fatal(err)
			}
			want := append(append(key8(0x400000), key8(0x401111)...), key8(0x402222)...)
			if !bytes.Equal(ips[:32], append(want, key8(0)...)) {
				t.Errorf("%s: stack %x", version, ips)
			}
		}
		if left != 1 {
			t.Errorf("%s: %d blocks left", version, left)
		}
		r, err := bpf.NewReader(l.mapOf(t, "events"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			rec, ok, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			d := rec.Data
			got = append(got, fmt.Sprintf("slot %d: %#x %d tid %d freed %d %s", rec.Slot, binary.LittleEndian.Uint64(d),
				binary.LittleEndian.Uint64(d[8:]), binary.LittleEndian.Uint32(d[16:]), d[20], bytes.TrimRight(d[21:37], "\x00")))
		}
		want := []string{"slot 1: 0xa0 10 tid 1001 freed 0 redis-server", "slot 1: 0xb0 20 tid 1001 freed 0 redis-server", "slot 1: 0xa0 10 tid 1001 freed 1 redis-server"}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s", version, strings.Join(got, "\n"))
		}
	}
}

// Top-N by a string of the target: functions, a loop, printk, a perf event array.
func TestTop(t *testing.T) {
	for _, version := range versions {
		l := verified(t, load(t, "testdata/top.bpf.c", version))
		var printed []string
		l.vm.Env.Trace = func(p bpf.Printk) { printed = append(printed, fmt.Sprintf("%d %s %v", p.Thread, p.Format, p.Args[1:])) }
		for i := range 5 {
			l.vm.Env.Slot = i % 3
			l.run(t, "count", map[string]uint64{"rdi": bpftest.PageAddr + bpftest.PageText, "rsi": 100})
		}
		l.run(t, "count", map[string]uint64{"rdi": 0, "rsi": 100})
		key := make([]byte, 32)
		copy(key, "SOME TEXT")
		v, err := l.mapOf(t, "top").Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		if calls, size := binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:]); calls != 5 || size != 500 {
			t.Errorf("%s: %d calls, %d bytes", version, calls, size)
		}
		threads, _ := l.mapOf(t, "top").Threads(key)
		if n := binary.LittleEndian.Uint64(threads[0]); len(threads) != 3 || n != 2 {
			t.Errorf("%s: %d threads, the first counted %d", version, len(threads), n)
		}
		if letters, _ := l.mapOf(t, ".bss").Lookup(key4(0)); binary.LittleEndian.Uint64(letters[8*('S'-'A'):]) != 5 {
			t.Errorf("%s: letters %v", version, letters)
		}
		if len(printed) != 5 || printed[0] != "1001 %s %d [10 0]" {
			t.Errorf("%s: printed %q", version, printed)
		}
		r, _ := bpf.NewReader(l.mapOf(t, "lines"))
		n := 0
		for rec, ok, err := r.Read(); ok; rec, ok, err = r.Read() {
			if n++; err != nil || string(rec.Data) != "SOME TEXT\x00" {
				t.Errorf("%s: %q %v", version, rec.Data, err)
			}
		}
		if n != 5 {
			t.Errorf("%s: %d records", version, n)
		}
		if res := l.run(t, "deny", nil); !res.Override || int64(res.Return) != -1 {
			t.Errorf("%s: %+v", version, res)
		}
		if p := l.Program("count"); p.Attach != "redis-server:call+4" {
			t.Errorf("attach %q", p.Attach)
		}
	}
}

// With vmlinux.h, accesses to struct pt_regs are relocations.
func TestRelocatesPtRegs(t *testing.T) {
	dir := t.TempDir()
	source := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const head = `
typedef unsigned long long u64;
#define SEC(x) __attribute__((section(x), used))
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs { long unsigned int ip, di, orig_ax, r15; };
struct task_struct { int pid; };
#pragma clang attribute pop
`
	l := verified(t, load(t, source("a.c", head+`
SEC("kprobe/f") u64 f(struct pt_regs *ctx) { return ctx->di + 2 * ctx->ip + 4 * ctx->r15 + 8 * ctx->orig_ax; }`), "v3"))
	if r := l.run(t, "f", map[string]uint64{"rdi": 1, "rip": 1, "r15": 1, "orig_rax": 1}); r.R0 != 15 {
		t.Errorf("%d: the wrong registers", r.R0)
	}
	_, err := bpf.Load(bytes.NewReader(clang(t, source("b.c", head+`
SEC("kprobe/f") u64 f(struct task_struct *t) { return t->pid; }`), "v3")))
	const want = "it asks where the fields of struct task_struct are (CO-RE)"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	c, err := bpf.Load(bytes.NewReader(clang(t, source("c.c", head+`
SEC("kprobe/f") u64 f(struct task_struct *t) { return t->pid; }
SEC("kprobe/g") u64 g(struct pt_regs *ctx) { return ctx->di; }`), "v3")))
	if err != nil || len(c.Programs) != 1 || len(c.Refused) != 1 || !strings.Contains(c.Refused[0].Error(), want) {
		t.Errorf("%v, %+v", err, c)
	}
}

// A filter by control groups, which tools have and which is off, is no hindrance.
func TestControlGroups(t *testing.T) {
	const file = "testdata/filter.bpf.c"
	for _, version := range versions {
		l := verified(t, load(t, file, version))
		l.run(t, "count", nil)
		if b, err := l.Var("calls").In(l.mapOf(t, ".bss")); err != nil || b[0] != 1 {
			t.Errorf("%s: % x calls (%v)", version, b, err)
		}
		c := load(t, file, version)
		if err := c.Set("filter_cg", 1); err != nil {
			t.Fatal(err)
		}
		const want = "helper 37 (bpf_current_task_under_cgroup) is not supported here: leave the object's filter by control groups off"
		if _, err := verify.Program(c.Programs[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	const head = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n"
	prog := func(section string) string {
		return head + `SEC("` + section + `") int f(void *ctx) { return 0; }`
	}
	m := func(def string) string {
		return head + `struct {` + def + `} m SEC(".maps"); SEC("uprobe") int f(void *ctx) { __u32 k = 0; return !!bpf_map_lookup_elem(&m, &k); }`
	}
	for i, tt := range []struct{ text, want string }{
		{prog("kretprobe.session/f"), "a session is of a function's entry and its return: kprobe.session/ or uprobe.session/"},
		{head + `extern _Bool bpf_session_is_return(void) __ksym; SEC("uprobe/f") int f(void *ctx) { return bpf_session_is_return(); }`, "bpf_session_is_return: this is no program of a session"},
		{prog("tracepoint/sched/sched_switch"), "a tracepoint is the kernel's"},
		{prog("fentry/vfs_read"), "use kprobe/ and kretprobe/, and PT_REGS_PARM1(ctx)"},
		{prog("ksyscall/read"), "kprobe/__x64_sys_NAME"},
		{head + `extern unsigned int CONFIG_NR_CPUS __kconfig; SEC("uprobe") int f(void *ctx) { return CONFIG_NR_CPUS; }`, "the object asks for CONFIG_NR_CPUS, a setting of the kernel"},
		{prog("xdp"), `section "xdp": not supported: it sees packets in a kernel: probe the functions that send and receive them in the program`},
		{prog("lsm/file_open"), "a uprobe of a function may decide with bpf_override_return"},
		{prog("iter/task"), "a program here runs where a function is probed"},
		{prog("unheard/of"), `section "unheard/of": not supported: kprobe/, kretprobe/, uprobe/, uretprobe/ and usdt/ are`},
		{m("__uint(type, BPF_MAP_TYPE_DEVMAP); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 4);"), `map "m": type 14 is not supported`},
		{m("__uint(type, BPF_MAP_TYPE_LPM_TRIE); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 4);"), `the key of an LPM trie is a length of 4 bytes, then 1 to 64 bytes, not 4 in all`},
		{m("__uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __uint(key_size, 8); __uint(value_size, 4);"), "key of 8 bytes: must be 4"},
		{head + `char big[100 << 20]; SEC("uprobe") int f(void *ctx) { return big[0]; }`, `section ".bss" of 104857600 bytes: more than`},
		{head + "int x;", "the object has no programs"},
	} {
		file := filepath.Join(dir, fmt.Sprint(i, ".c"))
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := bpf.Load(bytes.NewReader(clang(t, file, "v2"))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	if _, err := bpf.Load(strings.NewReader("no object")); err == nil {
		t.Error("text is no object")
	}
}

func TestFromAsm(t *testing.T) {
	maps := []*bpf.MapSpec{{Name: "other", Type: bpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}, {Name: "m", Type: bpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1}}
	insns := asm.Instructions{
		asm.LoadMapValue(asm.R1, 0, 8).WithReference("m"),
		asm.Mov.Imm(asm.R2, 7),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
		asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
		asm.Call.Label("f"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 42).WithSymbol("f"),
		asm.SDiv.Imm(asm.R0, -2),
		asm.Return(),
	}
	p, err := bpf.FromAsm("test", bpf.Kprobe, insns, maps)
	if err != nil {
		t.Fatal(err)
	}
	l := verified(t, &bpf.Collection{Programs: []*bpf.Program{p}, Maps: maps})
	if r := l.run(t, "test", nil); int64(r.R0) != -21 {
		t.Errorf("result %d", int64(r.R0))
	}
	if v, _ := l.mapOf(t, "m").Lookup(key4(0)); binary.LittleEndian.Uint64(v[8:]) != 14 {
		t.Errorf("value %v", v)
	}
	insns[0] = insns[0].WithReference("none")
	if _, err := bpf.FromAsm("test", bpf.Kprobe, insns, maps); err == nil || !strings.Contains(err.Error(), `uses map "none", which is not there`) {
		t.Error(err)
	}
}

// Things that an object leaves to the loader, or to the loader's kernel, are asked for or known.
func TestLoadLeavesOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "open.c")
	text := `#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
extern const _Bool LINUX_HAS_BPF_COOKIE __kconfig;
extern int LINUX_KERNEL_VERSION __kconfig;
extern _Bool LINUX_HAS_SYSCALL_WRAPPER __kconfig;
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(key_size, 8); __uint(value_size, 4); } m SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 5000); } r SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_STACK_TRACE); __uint(key_size, 4); } s SEC(".maps");
SEC("uprobe.s/f") int f(void *ctx) { return LINUX_KERNEL_VERSION + LINUX_HAS_SYSCALL_WRAPPER; }
SEC("uretprobe.multi/libc.so.6:mall*") int g(void *ctx) { return LINUX_HAS_BPF_COOKIE ? 7 : 8; }
SEC("usdt/./f:provider:name") int h(void *ctx) { return 0; }
SEC("tp/sched/sched_switch") int i(void *ctx) { __u64 k = 0; return !!bpf_map_lookup_elem(&m, &k) + bpf_ringbuf_output(&r, &k, 8, 0) + bpf_get_stackid(ctx, &s, 0); }
SEC("uprobe/nowhere") int j(void *ctx) { return 0; }`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := bpf.Load(bytes.NewReader(clang(t, file, "v2")))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Leave("j"); err != nil || c.Program("j") != nil {
		t.Error("a program that is left out is there", err)
	}
	if err := c.Leave("j"); err == nil {
		t.Error("no such program")
	}
	if s := c.Map("s"); s.MaxEntries != 16<<10 || s.ValueSize != 8*bpf.MaxTrace {
		t.Errorf("stack traces: %+v", s)
	}
	if len(c.Programs) != 3 || len(c.Refused) != 1 || !strings.Contains(c.Refused[0].Error(), `program "i"`) {
		t.Errorf("%d programs, refused %v", len(c.Programs), c.Refused)
	}
	if g := c.Program("g"); g.Kind != bpf.Kretprobe || !g.Glob || g.Attach != "libc.so.6:mall*" {
		t.Errorf("%+v", g)
	}
	if h := c.Program("h"); !h.USDT || h.Attach != "./f:provider:name" {
		t.Errorf("%+v", h)
	}
	if n := c.Map("r").MaxEntries; n != 8192 {
		t.Errorf("a ring of %d bytes", n)
	}
	if _, err := verify.Program(c.Program("f")); err == nil || !strings.Contains(err.Error(), `--entries m=NUMBER`) {
		t.Error(err)
	}
	if err := c.SetEntries("m", 1<<31); err == nil || c.Map("m").MaxEntries != 0 {
		t.Error("a map of 2^31 elements")
	}
	if err := c.SetEntries("n", 5); err == nil {
		t.Error("no such map")
	}
	if err := c.SetEntries("m", 5); err != nil {
		t.Fatal(err)
	}
	l := verified(t, c)
	for name, want := range map[string]uint64{"f": 6<<16 + 1<<8 + 1, "g": 7} {
		if r := l.run(t, name, nil); r.R0 != want {
			t.Errorf("%s: %d, want %d", name, r.R0, want)
		}
	}
}
