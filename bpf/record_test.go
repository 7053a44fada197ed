package bpf_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/bpf"
)

// recordObject has structures of 16 bytes in one variable, of 24 in two, and of 32 in none of a
// function.
const recordObject = `#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct event { long at, what; };
struct one { long a, b, c; };
struct other { long x, y, z; };
typedef struct { int n[8]; } told_t;
const told_t *unused __attribute__((unused));
const struct event *this_too __attribute__((unused));

struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");

SEC("uprobe/f")
int tell(void *ctx)
{
	struct event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	struct one one = { 1 };
	struct other other = { 2 };

	if (e) {
		e->at = e->what = 1;
		bpf_ringbuf_submit(e, 0);
	}
	bpf_ringbuf_output(&ring, &one, sizeof(one), 0);
	bpf_ringbuf_output(&ring, &other, sizeof(other), 0);
	return 0;
}
`

// A record is taken for a structure only where no other one could be meant: by the functions'
// variables, and, in an object without DWARF, by its BTF.
func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.bpf.c")
	if err := os.WriteFile(file, []byte(recordObject), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		object := clang(t, file, version)
		stripped := filepath.Join(t.TempDir(), "stripped.o")
		if err := os.WriteFile(stripped, object, 0o644); err != nil {
			t.Fatal(err)
		}
		if msg, err := exec.Command("llvm-strip", "-g", stripped).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, msg)
		}
		bare, err := os.ReadFile(stripped)
		if err != nil {
			t.Fatal(err)
		}
		for what, b := range map[string][]byte{"with DWARF": object, "without": bare} {
			c, err := bpf.Load(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			for size, want := range map[int]string{8: "none", 16: "event", 24: "none", 32: ""} {
				got, err := c.Record(size)
				if err != nil {
					t.Fatal(err)
				}
				if name := "none"; got == nil && want != name || got != nil && got.TypeName() != want {
					t.Errorf("%s, %s: a record of %d bytes is %v, want %s", version, what, size, got, want)
				}
			}
		}
	}
}
