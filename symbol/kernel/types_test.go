package kernel

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/spec"
)

// compiled is the BTF that clang makes of a file in testdata.
func compiled(t testing.TB, file string, order binary.ByteOrder) []byte {
	t.Helper()
	target := "bpfel"
	if order == binary.BigEndian {
		target = "bpfeb"
	}
	object := filepath.Join(t.TempDir(), target)
	if out, err := exec.Command("clang", "-target", target, "-O1", "-g", "-c", "-o", object, "testdata/"+file).CombinedOutput(); err != nil {
		t.Fatalf("clang: %v: %s", err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := f.Section(".BTF").Data()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBind(t *testing.T) {
	little := &arch.Arch{Name: "little", Order: binary.LittleEndian, PtrSize: 8}
	big := &arch.Arch{Name: "big", Order: binary.BigEndian, PtrSize: 8}
	for _, a := range []*arch.Arch{little, big} {
		types, err := parseTypes(compiled(t, "args.c", a.Order), nil, a)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ def, want, big string }{
			{"p probed o", "o=$arg1:x64", ""},
			{"p probed count s c", "count=$arg2:s32 s=$arg3:x64 c=$arg4:u8", ""},
			{"p probed $arg*", "o=$arg1:x64 count=$arg2:s32 s=$arg3:x64 c=$arg4:u8 pp=$arg5:x64", ""},
			{"r probed $arg*", "o=$arg1:x64 count=$arg2:s32 s=$arg3:x64 c=$arg4:u8 pp=$arg5:x64", ""},
			{"p probed count=%di $arg*", "count=%di o=$arg1:x64 arg2=$arg2:s32 s=$arg3:x64 c=$arg4:u8 pp=$arg5:x64", ""}, // two with one name would be one key of JSON
			{"p probed x=count:x16", "x=$arg2:x16", ""},
			{"p probed s:string", "s=+0($arg3):string", ""},
			{"p probed s:ustring", "s=+u0($arg3):ustring", ""},
			{"p probed o->text", "arg1=+0($arg1):x64", ""},
			{"p probed o->text:string", "arg1=+0(+0($arg1)):string", ""},
			{"p probed o->in.name", "arg1=+8($arg1):string", ""},
			{"p probed o->in.name:string", "arg1=+8($arg1):string", ""},
			{"p probed o->in.nums", "arg1=+24($arg1):s32[5]", ""},
			{"p probed o->ptr->nums o->ptr->name", "arg1=+16(+56($arg1)):s32[5] arg2=+0(+56($arg1)):string", ""},
			{"p probed o->anon_a o->anon_b", "arg1=+64($arg1):s32 arg2=+64($arg1):s64", ""},
			{"p probed o->kind o->flags o->flag o->sh", "arg1=+72($arg1):u32 arg2=+76($arg1):u32 arg3=+80($arg1):u8 arg4=+82($arg1):s16", ""},
			{"p probed o->in.lo o->in.mid o->in.hi", "arg1=+44($arg1):b3@0/32 arg2=+44($arg1):b7@3/32 arg3=+44($arg1):b4@10/32",
				"arg1=+44($arg1):b3@29/32 arg2=+44($arg1):b7@22/32 arg3=+44($arg1):b4@18/32"},
			{"p probed o->in.wide", "arg1=+48($arg1):b40@0/64", "arg1=+48($arg1):b40@24/64"},
			{"p probed w=+8(o) v=+4(+8(o->ptr))", "w=+8($arg1) v=+4(+8(+56($arg1)))", ""},
			{"p probed a=%di b=$arg2 c=$comm", "a=%di b=$arg2 c=$comm", ""},
			{"r probed $retval", "arg1=$retval", ""},
			{"r probed $retval->kind", "arg1=+72($retval):u32", ""},
			{"p by_value before", "before=$arg1:s32", ""},
			{"p nothing $arg*", "", ""},
		} {
			sp, args := bound(t, types, tt.def)
			if args == nil {
				continue
			}
			want := tt.want
			if a == big && tt.big != "" {
				want = tt.big
			}
			copied := *sp
			copied.Args = args
			_, got, _ := strings.Cut(copied.String(), " "+sp.Place.Symbol)
			if got = strings.TrimSpace(got); got != want {
				t.Errorf("%s, %s: %q, not %q", a.Name, tt.def, got, want)
			}
		}
	}
}

// bound parses and binds a definition.
func bound(t *testing.T, types *Types, def string) (*spec.Spec, []spec.Arg) {
	t.Helper()
	anyReg := func(string) bool { return true }
	sp, err := spec.Options{Dialect: spec.Kprobes, Types: true, IsReg: anyReg}.Parse(def)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	args, err := types.Bind(sp, sp.Place.Symbol, sp.Place.Offset)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	return sp, append([]spec.Arg{}, args...)
}

// An argument that cannot be bound is refused by the kernel's code, at the caret.
func TestBindErrors(t *testing.T) {
	types, err := parseTypes(compiled(t, "args.c", binary.LittleEndian), nil, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		def, caret string
		code       spec.Code
	}{
		{"p probed nothing",
			"         ^", spec.NoBtfArg},
		{"p by_value after", // behind a struct that is in more than a register
			"           ^", spec.NoBtfArg},
		{"p probed+4 a=%di o",
			"                 ^", spec.NoFentryArgs},
		{"p unknown o",
			"  ^", spec.NoBtfEntry},
		{"p probed o->nothing",
			"            ^", spec.NoBtfField},
		{"p probed o->in.nothing",
			"               ^", spec.NoBtfField},
		{"p probed count->x",
			"                ^", spec.NoPtrStrct},
		{"p probed pp->text", // a pointer to a pointer
			"             ^", spec.NoPtrStrct},
		{"p probed o->kind.x",
			"                 ^", spec.NoPtrStrct},
		{"p probed o->opaque->x",
			"                    ^", spec.NoPtrStrct},
		{"p probed o->in", // a struct is no value
			"         ^", spec.BadType},
		{"p probed o->table",
			"         ^", spec.BadType},
		{"p probed count:string",
			"               ^", spec.BadType4Str},
		{"p probed o->in.nums:string",
			"                    ^", spec.BadType4Str},
	} {
		sp, err := spec.Options{Dialect: spec.Kprobes, Types: true, IsReg: func(string) bool { return true }}.Parse(tt.def)
		if err != nil {
			t.Error(err)
			continue
		}
		_, err = types.Bind(sp, sp.Place.Symbol, sp.Place.Offset)
		var e *spec.SyntaxError
		if !errors.As(err, &e) || e.Code != tt.code || e.Offset != len(tt.caret)-1 {
			t.Errorf("%s\n%s %s\nis %v", tt.def, tt.caret, tt.code, err)
		}
	}
	sp, _ := spec.Options{Dialect: spec.Kprobes, Types: true}.Parse("p probed o")
	var none *Types
	if _, err := none.Bind(sp, "probed", 0); !errors.Is(err, ErrNoTypes) || !strings.Contains(err.Error(), string(spec.NoSupBtfArg)) {
		t.Errorf("without types: %v", err)
	}
}

// Damaged type information is refused, or does not hang its users.
func FuzzTypes(f *testing.F) {
	good := [][]byte{compiled(f, "args.c", binary.LittleEndian), compiled(f, "args.c", binary.BigEndian), compiled(f, "kernel64.c", binary.LittleEndian)}
	whole, _ := fakeKernel(f, 2)
	for i := range good {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{60, 0, 0, 0, 2, 64, 0, 0, 0, 3})
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		types, err := parseTypes(damage(good[int(which)%len(good)], edits), nil, arch.AMD64)
		if err != nil {
			return
		}
		for _, def := range []string{"p probed $arg*", "p probed o->in.lo o->ptr->name o->anon_b s:string", "r probed $retval->kind"} {
			sp, err := spec.Options{Dialect: spec.Kprobes, Types: true}.Parse(def)
			if err != nil {
				t.Fatal(err)
			}
			types.Bind(sp, "probed", 0)
		}
		types.Offset("module", "mem")
		k := &Kernel{arch: arch.AMD64, types: types, table: whole.table, mem: whole.mem}
		k.Update()
		k.Foreign(fakeText, fakeText+0x1000)
	})
}
