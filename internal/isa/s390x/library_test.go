package s390x

import (
	"bufio"
	"encoding/hex"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// GNU's disassembler as the judge, over whole libraries: an instruction that it shows to refer to
// an address refers to the same one here, and no other instruction refers to any.

var libraries = []string{"libc.so.6", "libm.so.6", "ld64.so.1", "libgcc_s.so.1"}

var line = regexp.MustCompile(`^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t([a-z0-9._]+)(?:\t(.*))?$`)

// place is an operand that is an address, at the end.
var place = regexp.MustCompile(`(?:^|,)([0-9a-f]+) <`)

// flows tell the flow of GNU's text, the first that matches; an instruction that none matches goes
// on.
var flows = []struct {
	text *regexp.Regexp
	flow isa.Flow
}{
	{regexp.MustCompile(`^jg? `), isa.Jump},
	{regexp.MustCompile(`^(brasl?|jasl?) `), isa.Call},
	{regexp.MustCompile(`^br %r14$`), isa.Return},
	{regexp.MustCompile(`^(nopr?|jg?nop|bpr?p) |^(b\w*r|nopr) %r0$|^(balr|basr) .*,%r0$`), isa.Next},
	{regexp.MustCompile(`^(jg?\w+|br[cx]\w*|cl?g?[ri]j\w*) `), isa.CondJump},
	{regexp.MustCompile(`^(bal|balr|bas|basr|bassm) `), isa.IndirectCall},
	{regexp.MustCompile(`^(bctg?r?|bxh|bxle|bxhg|bxleg|b|b\w{1,3}r?|cl?g?[ri]b\w*|pr|bsm) `), isa.IndirectJump},
	{regexp.MustCompile(`^svc `), isa.Syscall},
}

func flowOf(text string) isa.Flow {
	for _, f := range flows {
		if f.text.MatchString(text) {
			return f.flow
		}
	}
	return isa.Next
}

func TestLibraries(t *testing.T) {
	seen, relative, refused, sizes, flows := 0, 0, map[string]int{}, map[int]int{}, map[isa.Flow]int{}
	for _, lib := range libraries {
		cmd := exec.Command("s390x-linux-gnu-objdump", "-d", "-z", "--insn-width=6", "/usr/s390x-linux-gnu/lib/"+lib)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(out); s.Scan(); {
			m := line.FindStringSubmatch(s.Text())
			if m == nil || strings.HasPrefix(m[3], ".") {
				continue
			}
			pc, _ := strconv.ParseUint(m[1], 16, 64)
			code, _ := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
			in, err := ISA.Decode(code, arch.Addr(pc))
			want := flowOf(m[3] + " " + m[4])
			to := place.FindStringSubmatch(m[4])
			seen++
			flows[want]++
			sizes[len(code)]++
			if err != nil || in.Len != len(code) || in.Flow != want || in.PCRel != (to != nil) {
				t.Errorf("%s %x: % x %s %s: %+v, %v, want flow %v", lib, pc, code, m[3], m[4], in, err, want)
			}
			if to != nil {
				relative++
				if a, _ := strconv.ParseUint(to[1], 16, 64); arch.Addr(a) != in.Target {
					t.Errorf("%s %x: % x %s %s: refers to %v", lib, pc, code, m[3], m[4], in.Target)
				}
			}
			if v, err := ISA.Place(code, arch.Addr(pc), arch.Addr(pc)+1<<28); err != nil || v.Kind == isa.Refuse || v.Kind == isa.InPlace {
				refused[m[3]]++
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d instructions, of lengths %v, %d refer to their own place; %v; not moved: %v", seen, sizes, relative, flows, refused)
	if seen < 300000 || sizes[2] < 10000 || sizes[4] < 100000 || sizes[6] < 100000 || relative < 60000 || len(refused) > 30 {
		t.Errorf("of %d instructions of lengths %v %d refer to their own place, not moved are %v", seen, sizes, relative, refused)
	}
}
