package symbol

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"kprobe/internal/testprog"
)

// ruleAt is the rule for an address.
func ruleAt(rows []FrameRow, addr uint64) FrameRule {
	i, found := slices.BinarySearchFunc(rows, addr, func(r FrameRow, a uint64) int {
		if r.Addr < a {
			return -1
		} else if r.Addr > a {
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 {
		return FrameRule{}
	}
	return rows[i].Rule
}

// returnRule is the number of x86-64's return address.
const returnRule = 16

// Every row equals that of another reader of the same tables.
func TestFrameRulesAreDelves(t *testing.T) {
	libs, err := filepath.Glob("/lib/x86_64-linux-gnu/libc.so.6")
	if err != nil || len(libs) == 0 {
		libs, _ = filepath.Glob("/lib*/libc.so.6")
	}
	libs = append(libs, "/bin/bash")
	for _, path := range libs {
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		f, err := Open(r, &Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine() != elf.EM_X86_64 {
			continue
		}
		rows := f.FrameRows()
		s := f.section(".eh_frame")
		b, err := f.sectionData(s)
		if err != nil {
			t.Fatal(err)
		}
		es, err := frame.Parse(b, f.elf.ByteOrder, 0, 8, s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		step := 7
		if testing.Short() {
			step = 97
		}
		compared, other := 0, 0
		for i := 0; i < len(rows); i += step {
			addr := rows[i].Addr
			e, err := es.FDEForPC(addr)
			have := rows[i].Rule
			if err != nil {
				continue // it does not find all that readelf shows
			}
			if have.CFA == NoFrame || have.CFA == LikelyFP {
				t.Errorf("%s %#x: a table tells of it", path, addr)
				continue
			}
			ctx, err := e.EstablishFrame(addr)
			if err != nil {
				continue
			}
			compared++
			want := FrameRule{Off: ctx.CFA.Offset}
			switch {
			case have.CFA == Outermost || have.CFA == OfSignal || have.CFA == InPLT || have.CFA == FromPointer:
				other++
				if have.CFA == Outermost != (ctx.Regs[returnRule].Rule == frame.RuleUndefined) || have.CFA != Outermost && ctx.CFA.Rule != frame.RuleExpression {
					t.Errorf("%s %#x: %+v", path, addr, have)
				}
				continue
			case ctx.CFA.Rule == frame.RuleExpression:
				want = FrameRule{CFA: OtherRule}
			case ctx.CFA.Reg == dwarfSP:
				want.CFA = FromSP
			case ctx.CFA.Reg == dwarfFP:
				want.CFA = FromFP
			default:
				want = FrameRule{CFA: OtherRule}
			}
			if fp, ok := ctx.Regs[dwarfFP]; ok && fp.Rule == frame.RuleOffset && want.CFA != OtherRule {
				want.FP, want.FPOff = InFrame, fp.Offset
			}
			if want.CFA == FromSP && want.FPOff < -want.Off { // popped
				want.FP, want.FPOff = Kept, 0
			}
			if have != want {
				t.Errorf("%s %#x: %+v, want %+v", path, addr, have, want)
			}
		}
		if compared < len(rows)/step/2 || compared < 100 {
			t.Errorf("%s: %d rows of %d compared", path, compared, len(rows))
		}
		t.Logf("%s: %d rows, %d compared, %d of them special", path, len(rows), compared, other)
	}
}

// Go's own table agrees with the linker's data for debuggers.
func TestGoFrameRulesAreItsDebugData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prog")
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(1) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := Open(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine() != elf.EM_X86_64 {
		return
	}
	rows := f.goRows()
	var debug []FrameRow
	for _, e := range f.readDebugFrames().fdes {
		debug = e.rows(debug)
	}
	compared := 0
	for _, r := range debug {
		have := ruleAt(rows, r.Addr)
		if have.CFA != FromSP || r.Rule.CFA != FromSP { // code that changes stacks, and code that is not called
			continue
		}
		compared++
		if have.Off != r.Rule.Off {
			t.Errorf("%#x: %+v, want %+v", r.Addr, have, r.Rule)
		}
	}
	if compared < 3000 || compared < len(debug)*9/10 {
		t.Errorf("%d of %d rows compared", compared, len(debug))
	}
}

// A program's start has no return address, and the functions that it calls have one.
func TestUncalled(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O2", "-m32"}, {"-O2", "-static"}} {
		if runtime.GOARCH != "amd64" && slices.Contains(flags, "-m32") {
			continue
		}
		f := open(t, testprog.Build(t, "jumpers", flags...), false)
		if !f.Uncalled(f.Entry()) {
			t.Errorf("%q: the start has a return address", flags)
		}
		for _, s := range f.Lookup("main") {
			if f.Uncalled(s.Addr) {
				t.Errorf("%q: main has no return address", flags)
			}
		}
	}
}
