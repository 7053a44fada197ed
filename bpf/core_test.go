package bpf_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/verify"
)

// coreObject asks for fields by their names. Where they are in the program, it does not say.
const coreObject = `#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct client { int port; char *name; };
struct server { unsigned long hits; struct client *first; struct { int low; } in; unsigned int mode : 4; };
struct server___old { long gone; };
enum state { OPEN, CLOSED };
#pragma clang attribute pop

long port, low, mode, size, has, closed;
char name[8];

SEC("uprobe/f")
int look(struct pt_regs *ctx)
{
	struct server *s = (void *)PT_REGS_PARM1(ctx);
	struct server___old *old = (void *)s;
	port = BPF_CORE_READ_USER((struct server *)PT_REGS_PARM1(ctx), first, port);
	bpf_probe_read_user_str(name, sizeof(name), BPF_CORE_READ_USER(s, first, name));
	low = BPF_CORE_READ_USER(s, in.low);
	mode = BPF_CORE_READ_BITFIELD_PROBED(s, mode);
	size = bpf_core_type_size(struct server);
	has = bpf_core_field_exists(s->hits) + 2 * bpf_core_field_exists(old->gone);
	closed = bpf_core_enum_value(enum state, CLOSED);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// The program has all of it elsewhere.
const coreProgram = `
enum state { NEW, OPEN, CLOSED = 77 };
struct client { long id; char *name; enum state state; int port; };
struct server { char pad[20]; struct { int high, low; } in; unsigned unused : 3, mode : 4; struct client *first; long hits; };
struct server s = { .in = { 1, 2 }, .mode = 9 };
`

// TestCore relocates an object for the types of a program.
func TestCore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.bpf.c")
	if err := os.WriteFile(file, []byte(coreObject), 0o644); err != nil {
		t.Fatal(err)
	}
	compiled := func(name, text string, flags ...string) io.ReaderAt {
		t.Helper()
		source, object := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".o")
		if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if msg, err := exec.Command("gcc", append(flags, "-c", source, "-o", object)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, msg)
		}
		b, err := os.ReadFile(object)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(b)
	}
	for _, version := range versions {
		object := bytes.NewReader(clang(t, file, version))
		for _, dwarf := range []string{"-gdwarf-4", "-gdwarf-5"} {
			none := compiled("none", "int x;") // a file that has none is no hindrance
			c, err := bpf.Load(object, none, compiled("same", coreProgram, dwarf), compiled("program", coreProgram+"\nint other;", dwarf))
			if err != nil {
				t.Fatal(err)
			}
			l := verified(t, c)
			memory := make([]byte, 0x200)
			put := func(at int, v any) {
				if _, err := binary.Encode(memory[at:], binary.LittleEndian, v); err != nil {
					t.Fatal(err)
				}
			}
			put(24, int32(42))      // low
			put(28, uint32(9<<3|5)) // mode, beside unused fields
			put(32, uint64(0x1100)) // first
			put(0x100+8, uint64(0x1180))
			put(0x100+20, int32(6379))
			copy(memory[0x180:], "redis")
			l.vm.Env.Read = func(addr uint64, p []byte) error {
				if addr < 0x1000 || addr+uint64(len(p)) > 0x1200 {
					return os.ErrInvalid
				}
				copy(p, memory[addr-0x1000:])
				return nil
			}
			l.run(t, "look", map[string]uint64{"rdi": 0x1000})
			for name, want := range map[string]uint64{"port": 6379, "low": 42, "mode": 9, "size": 48, "has": 1, "closed": 77, "name": 0x7369646572} {
				b, err := l.Var(name).In(l.mapOf(t, ".bss"))
				if err != nil || binary.LittleEndian.Uint64(b) != want {
					t.Errorf("%s %s: %s is % x (%v), want %d", version, dwarf, name, b, err, want)
				}
			}
		}
		// Two structures of one name that differ: it cannot be said which is meant.
		other := compiled("other", strings.Replace(coreProgram, "long id;", "long id, more;", 1), "-g")
		for _, tt := range []struct {
			files []io.ReaderAt
			want  string
		}{
			{[]io.ReaderAt{compiled("program", coreProgram, "-g"), other}, "ambiguous"},
			{nil, "asks where the fields of struct"},
			{[]io.ReaderAt{strings.NewReader("no program")}, "the target's types"},
		} {
			c, err := bpf.Load(object, tt.files...)
			if err == nil {
				_, err = verify.Program(c.Programs[0])
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %s", version, err, tt.want)
			}
		}
	}
}
