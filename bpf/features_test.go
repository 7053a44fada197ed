package bpf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/verify"
)

// featureHead has the types by which objects ask what is there, each as a kernel has more of it.
const featureHead = `#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_ringbuf { long waitq; };
struct task_struct { int pid; };
struct unheard_of { int n; };
#pragma clang attribute pop
`

const featureObject = featureHead + `
extern int CONFIG_UNHEARD_OF __kconfig __weak;
extern int bpf_copy_from_user_str(void *dst, __u32 size, const void *from, __u64 flags) __ksym __weak;
extern int bpf_unheard_of(int n) __ksym __weak;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__uint(map_flags, BPF_F_NO_COMMON_LRU | BPF_F_ZERO_SEED);
	__type(key, int);
	__type(value, long);
} kept SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

long has, pid = 7, setting = 7, length;
char text[8];

SEC("uprobe/f")
int ask(void *ctx)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	int key = 1;

	has = bpf_core_type_exists(struct bpf_ringbuf) + 2 * bpf_core_type_exists(struct unheard_of) +
	      4 * bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_attach_cookie) +
	      8 * bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_for_each_map_elem) +
	      16 * bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_timer_init) +
	      32 * bpf_core_enum_value_exists(enum bpf_map_type, BPF_MAP_TYPE_BLOOM_FILTER) +
	      64 * bpf_core_enum_value_exists(enum bpf_map_type, BPF_MAP_TYPE_XSKMAP);
	if (bpf_core_field_exists(t->pid))
		pid = BPF_CORE_READ(t, pid);
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_timer_init))
		pid = bpf_core_enum_value(enum bpf_func_id, BPF_FUNC_timer_init);
	if (bpf_core_type_exists(struct bpf_ringbuf))
		bpf_ringbuf_output(&records, &key, sizeof(key), 0);
	else
		bpf_perf_event_output(ctx, &records, BPF_F_CURRENT_CPU, &key, sizeof(key));
	setting = CONFIG_UNHEARD_OF;
	bpf_map_update_elem(&kept, &key, &has, BPF_ANY);
	if (bpf_copy_from_user_str)
		length = bpf_copy_from_user_str(text, sizeof(text), (void *)0x1000, 0);
	if (bpf_unheard_of)
		length = bpf_unheard_of(1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// Objects that ask what there is get an answer, and need not be able to use things that they are
// told are missing.
func TestFeatures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.bpf.c")
	if err := os.WriteFile(file, []byte(featureObject), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		l := verified(t, load(t, file, version))
		l.vm.Env.Read = func(addr uint64, p []byte) error {
			if n := copy(p, "a text\x00"[min(addr-0x1000, 7):]); n < len(p) {
				return os.ErrInvalid
			}
			return nil
		}
		l.run(t, "ask", nil)
		for name, want := range map[string]uint64{"has": 1 + 4 + 8 + 32, "pid": 7, "setting": 0, "length": 7} {
			b, err := l.Var(name).In(l.mapOf(t, l.Var(name).Map.Name))
			if err != nil || binary.LittleEndian.Uint64(b) != want {
				t.Errorf("%s: %s is % x (%v), want %d", version, name, b, err, want)
			}
		}
		if !l.Map("kept").Pinned || l.Map("records").Pinned {
			t.Errorf("%s: which map is pinned: %+v", version, l.Map("kept"))
		}
		if v, err := l.mapOf(t, "kept").Lookup(key4(1)); err != nil || v[0] != 1+4+8+32 {
			t.Errorf("%s: % x %v", version, v, err)
		}
	}
}

// A program may still use a thing that it was told is not there. It is refused, by the thing's
// name.
func TestLackingTypes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.bpf.c")
	if err := os.WriteFile(file, []byte(featureHead+`
SEC("uprobe/f")
int ask(void *ctx)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	return bpf_core_type_exists(struct unheard_of) ? 0 : BPF_CORE_READ(t, pid);
}

char LICENSE[] SEC("license") = "GPL";
`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		c, err := bpf.Load(bytes.NewReader(clang(t, file, version)))
		if err != nil {
			t.Fatal(err)
		}
		var lacks *bpf.VerifyError
		if _, err := verify.Program(c.Programs[0]); !errors.As(err, &lacks) || !lacks.Lacks || !strings.Contains(err.Error(), "asks where the fields of struct task_struct are") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// A program may read its own stack as if it were memory of the target.
func TestReadsOfOwnStack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.bpf.c")
	if err := os.WriteFile(file, []byte(`#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct pair { long a; int b, c; } got;
int low, left = 7;
char odd[3];

SEC("uprobe/f")
int copy(struct pt_regs *ctx)
{
	void *first = (void *)PT_REGS_PARM1(ctx);
	struct pair made = { PT_REGS_PARM2(ctx), 5, 0 }, again = {};
	char text[8] = "abcdefg";
	int n = 0;

	left = bpf_probe_read_kernel(&n, sizeof(n), &first);
	low = n;
	left += bpf_probe_read(&again, sizeof(again), &made);
	got = again;
	left += bpf_probe_read_kernel(odd, sizeof(odd), text + 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		l := verified(t, load(t, file, version))
		l.run(t, "copy", map[string]uint64{"rdi": 0x1122334455667788, "rsi": 1 << 40})
		for name, want := range map[string][]byte{"low": {0x88, 0x77, 0x66, 0x55}, "left": {0, 0, 0, 0}, "odd": []byte("bcd"),
			"got": {0, 0, 0, 0, 0, 1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}} {
			b, err := l.Var(name).In(l.mapOf(t, l.Var(name).Map.Name))
			if err != nil || !bytes.Equal(b, want) {
				t.Errorf("%s: %s is % x (%v), want % x", version, name, b, err, want)
			}
		}
	}
}
