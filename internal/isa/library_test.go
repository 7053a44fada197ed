package isa_test

import (
	"bufio"
	"encoding/hex"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/mips"
	"kprobe/internal/isa/ppc64le"
)

// library is a C library of a machine, as LLVM disassembles it.
type library struct {
	isa    isa.ISA
	path   string
	flags  []string
	flows  []row // the first that matches the text; an instruction that none matches goes on
	opens  string
	closes string
	delays string // has a delay slot
	apart  bool   // an address is given by how far it is
	about  int    // how many instructions there are at least
}

var libraries = []library{
	{isa: ppc64le.ISA, path: "/usr/powerpc64le-linux-gnu/lib/libc.so.6", flags: []string{"--mcpu=pwr10"}, about: 300000,
		flows: []row{{`^blr$`, isa.Return}, {`^b(lr|ctr|tar)l$|^bc(lr|ctr)l\t|^bc(lr|ctr)l `, isa.IndirectCall}, {`^b(ctr|tar)$|^bc(lr|ctr|tar)`, isa.IndirectJump},
			{`^b(dn?z|t|f|c)?l(a|[+-])?\s`, isa.Call}, {`^(b|ba)\s|^bca? 20, `, isa.Jump}, {`^b(dn?z|t|f|c|d)\w*[+-]?\s`, isa.CondJump},
			{`^b(dn?z)\w*lr[+-]?`, isa.IndirectJump}, {`^scv?\b`, isa.Syscall}, {`^trap$`, isa.Break}, {`^t[wd]`, isa.Trap}, {`^(h?rfi?d?|rfscv)$`, isa.Privileged}},
		opens: `^l[bhwdq]arx|^tbegin`, closes: `^st[bhwdq]cx\.|^tend`},
	{isa: mips.MIPS64LE, path: "/usr/mips64el-linux-gnuabi64/lib/libc.so.6", about: 300000, flows: mipsFlows, apart: true, delays: mipsDelays, opens: `^lld?\s`, closes: `^scd?\s`},
	{isa: mips.MIPSLE, path: "/usr/mipsel-linux-gnu/lib/libc.so.6", about: 300000, flows: mipsFlows, apart: true, delays: mipsDelays, opens: `^ll\s`, closes: `^sc\s`},
}

const mipsDelays = `^(j|jal|jr|jalr|jal?r\.hb|b|bal|b(eq|ne|lt|le|gt|ge)z?(l|al|all)?|bc[12][tf]l?)\s`

var mipsFlows = []row{{`^jr\s\$ra`, isa.Return}, {`^jr`, isa.IndirectJump}, {`^jalr`, isa.IndirectCall}, {`^(jal|bal|b(lt|ge)zall?)\s`, isa.Call},
	{`^(j|b)\s`, isa.Jump}, {`^b(eq|ne|lt|le|gt|ge)z?l?\s|^bc[12][tf]l?\s`, isa.CondJump}, {`^syscall`, isa.Syscall}, {`^break$`, isa.Break}, {`^(break|t(eq|ne|ge|lt)i?u?)\b`, isa.Trap}}

var (
	listed = regexp.MustCompile(`^ *([0-9a-f]+): ((?:[0-9a-f]{2} )+) *\t(.*)$`)
	named  = regexp.MustCompile(`(-?(?:0x)?[0-9a-f]+) <`)
)

// Whole libraries: where instructions begin, what they do to the program counter, where branches
// lead, and which belong to a load and store exclusive.
func TestLibraries(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 5 // reading what objdump prints takes longer than decoding
	}
	for _, l := range libraries {
		t.Run(l.isa.Arch().Name, func(t *testing.T) {
			cmd := exec.Command("llvm-objdump", slices.Concat([]string{"-d", "-z"}, l.flags, []string{l.path})...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines, seen, targets, monitors, wrong := 0, 0, 0, 0, 0
			for s := bufio.NewScanner(out); s.Scan(); {
				if lines++; lines%every != 0 {
					continue
				}
				m := listed.FindStringSubmatch(s.Text())
				if m == nil || strings.HasPrefix(m[3], "<unknown>") || strings.HasPrefix(m[3], ".") {
					continue
				}
				at, _ := strconv.ParseUint(m[1], 16, 64)
				code, _ := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
				text, pc := strings.TrimSpace(m[3]), arch.Addr(at)
				in, err := l.isa.Decode(code, pc)
				want := isa.Next
				for _, f := range l.flows {
					if is(f.text, text) {
						want = f.flow
						break
					}
				}
				seen++
				to := named.FindStringSubmatch(text)
				var target arch.Addr
				if want == isa.Next {
					to = nil // a number that an address is like
				}
				if to != nil {
					v, err := strconv.ParseInt(to[1], 0, 64)
					if err != nil {
						t.Fatalf("%s: %v", text, err)
					}
					if target = arch.Addr(v); l.apart {
						target += pc
					}
				}
				opens, closes := l.opens != "" && is(l.opens, text), l.closes != "" && is(l.closes, text)
				if opens || closes {
					monitors++
				}
				before := wrong
				wrong++
				switch {
				case err != nil || in.Len != len(code):
					t.Errorf("%v: % x %s: %+v, %v", pc, code, text, in, err)
				case in.Flow != want:
					t.Errorf("%v: % x %s: flow %v, want %v", pc, code, text, in.Flow, want)
				case opens != (in.Monitor == isa.Opens) || closes != (in.Monitor == isa.Closes):
					t.Errorf("%v: % x %s: monitor %v", pc, code, text, in.Monitor)
				case l.delays != "" && in.Delayed != is(l.delays, text):
					t.Errorf("%v: % x %s: delayed %v", pc, code, text, in.Delayed)
				case to != nil && target != in.Target:
					t.Errorf("%v: % x %s: leads to %v", pc, code, text, in.Target)
				default:
					wrong = before
				}
				if to != nil {
					targets++
				}
				if wrong > 30 {
					cmd.Process.Kill()
					break
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("%d instructions, %d lead to addresses, %d are exclusive", seen, targets, monitors)
			if seen < l.about/every || targets < l.about/every/20 || l.opens != "" && monitors < 20/every {
				t.Errorf("%d instructions, %d lead to addresses, %d are exclusive", seen, targets, monitors)
			}
		})
	}
}
