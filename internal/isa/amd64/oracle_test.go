package amd64

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

// The oracle is GNU objdump. Every line that it prints is judged alone: our
// decoder starts at the line's address, so one difference does not cause more.

// line is one instruction as objdump prints it, or, with len 0, the start of
// a symbol.
type line struct {
	addr uint64
	len  int
	text []byte
}

// disassemble calls f for every line that objdump prints when run with args.
// The line's text is valid during the call only.
func disassemble(args []string, f func(line)) error {
	cmd := exec.Command("objdump", append([]string{"-w", "-M", "intel"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		s, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if l, ok := parseLine(s); ok {
			f(l)
		}
	}
	return cmd.Wait()
}

// parseLine reads "  401000:\tf3 0f 1e fa          \tendbr64\n" and
// "0000000000401000 <main>:\n".
func parseLine(s []byte) (l line, ok bool) {
	s = bytes.TrimLeft(s, " ")
	var n int
	l.addr, n = number(s)
	if n == 16 && bytes.HasPrefix(s[n:], []byte(" <")) {
		return l, true
	}
	if n == 0 || !bytes.HasPrefix(s[n:], []byte(":\t")) {
		return l, false
	}
	s = s[n+2:]
	for len(s) >= 3 && s[2] == ' ' && s[0] != ' ' {
		l.len++
		s = s[3:]
	}
	l.text = bytes.TrimSpace(s)
	return l, l.len > 0
}

// number reads hexadecimal digits and tells how many there were.
func number(s []byte) (v uint64, n int) {
	for ; n < len(s); n++ {
		switch c := s[n]; {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return v, n
		}
	}
	return v, n
}

// target is the address that an instruction refers to relative to its own, as
// the text has it: after # for memory operands, as the operand of branches.
func (l line) target(branch bool) (v uint64, ok bool) {
	s := l.text
	if !branch {
		at := bytes.Index(s, []byte("# "))
		if at < 0 {
			return 0, false
		}
		s = s[at+2:]
	} else {
		// The operand is the first word that is a number: prefixes and
		// mnemonics all have a letter past f, or a comma (jae,pt).
		for found := false; !found; {
			s = bytes.TrimLeft(s, " ")
			word, rest, _ := bytes.Cut(s, []byte(" "))
			if len(word) == 0 {
				return 0, false
			}
			digits := bytes.TrimPrefix(word, []byte("0x"))
			if _, n := number(digits); n == len(digits) && n > 0 {
				found, s = true, word
			} else {
				s = rest
			}
		}
	}
	v, n := number(bytes.TrimPrefix(s, []byte("0x")))
	return v, n > 0
}

// judge compares the decoder with one line; code holds the bytes at its address. It returns ""
// where they agree, the name of an allowed difference in brackets, or a description of the error.
func judge(l line, code []byte, mode int) string {
	i, err := Decode(code, mode)
	bad := bytes.Contains(l.text, []byte("(bad)")) || bytes.Contains(l.text, []byte("bad}"))
	if bad && err != nil {
		return ""
	}
	if bad || err != nil || int(i.Len) != l.len {
		if d := allowed(l, code, mode, i, err); d != "" {
			return "[" + d + "]"
		}
	}
	if bad {
		return fmt.Sprintf("objdump says bad, we say %d bytes", i.Len)
	}
	if err != nil {
		return err.Error()
	}
	if int(i.Len) != l.len {
		return fmt.Sprintf("length %d, objdump %d", i.Len, l.len)
	}
	branch := i.PCRel && i.PCRelOff == i.ImmOff && i.ImmSize > 0
	want, ok := l.target(branch)
	if rip := bytes.Contains(l.text, []byte("[rip")) || bytes.Contains(l.text, []byte("[eip")); rip != (i.PCRel && !branch) {
		return "PC-relative operand or not"
	}
	if i.PCRel {
		got := l.addr + uint64(l.len) + uint64(i.Rel)
		if mode == 32 {
			got &= 0xffffffff
		}
		if !ok || got != want {
			return fmt.Sprintf("target %#x, objdump %#x", got, want)
		}
	}
	return ""
}

// allowed names the difference from objdump that is meant, if it is one.
func allowed(l line, code []byte, mode int, i Inst, err error) string {
	prefixes, rest := splitPrefixes(code, mode)
	switch text := string(l.text); {
	case onlyPrefixes(l.text) && (err != nil || int(i.Len) > l.len):
		// objdump ends an instruction before a prefix that it cannot fold
		// into it, so that the next line starts there; the processor does not.
		return "prefix alone"
	case strings.HasPrefix(text, ".byte"):
		return "section ends within the instruction"
	case rest[0] == 0x9b && err == nil && l.len > int(i.Len):
		// The assembler's finit is fwait and fninit: two instructions.
		if j, err := Decode(rest[1:], mode); err != nil || int(i.Len+j.Len) == l.len {
			return "fwait with x87"
		}
	case err != nil && bytes.IndexByte(prefixes, 0x66) >= 0 && isRelative(rest):
		return "66 on a relative branch depends on the vendor"
	case err != nil && isVector(rest, mode) && slices.ContainsFunc(prefixes, noneBeforeVector):
		return "prefix that is #UD before VEX, EVEX and XOP"
	}
	return operandRules(l, rest, mode, i, err)
}

// operandRules are the differences where objdump and we see the same opcode.
func operandRules(l line, code []byte, mode int, i Inst, err error) string {
	text := string(l.text)
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case err == nil && (has("bndldx ") || has("bndstx ") || has("bndmk ") || has("bndcu ") || has("bndcl ") || has("bndcn ") || has("bndmov ")):
		return "MPX operand that is #UD with MPX on and a nop without"
	case err == nil && strings.HasPrefix(text, "k") && has("(bad)"), err == nil && strings.HasPrefix(text, "td") && has("/(bad)"),
		err == nil && (has("gather") || has("scatter")) && has("/(bad)"),
		err == nil && (strings.HasPrefix(text, "vf") && has("c") && has("(bad)")):
		return "operand register that is #UD: which registers is not decoding's business"
	case err == nil && i.Enc == EVEX && (mode == 32 || i.Rex&0x08 == 0) && has("-bad}") && (has("2pd ") || has("2sd ")):
		return "rounding of a conversion that is exact"
	case err == nil && i.Enc == EVEX && (i.Opcode == 0x72 || i.Opcode == 0x73):
		return "W depends on the group member"
	case err != nil && (has("vmovdqu8 ") || has("vmovdqu16 ")) && has("BCST"):
		return "has no broadcast"
	case err != nil && code[0] == 0x62 && (has("vmovhps ") || has("vmovlps ")):
		return "W must be 0"
	case err == nil && mode == 32 && i.Map == Map0F && i.Enc == Legacy && (i.Opcode == 0x01 || i.Opcode == 0xc7):
		return "group member that exists in 64-bit code only"
	case err != nil && (has("vzeroupper") || has("vzeroall") || has("vldmxcsr") || has("vstmxcsr")):
		return "pp must be 0"
	case err != nil && (has("ldtilecfg") || has("sttilecfg")):
		return "ModRM.reg must be 0"
	case err != nil && code[0] == 0x8f && has("bextr"):
		return "L must be 0"
	case err != nil && code[0] == 0x62 && code[3]&0x08 == 0:
		again := slices.Clone(code)
		again[3] |= 0x08
		if i, err := Decode(again, mode); err == nil && int(i.Len) == l.len {
			return "EVEX.V' with vvvv not used is #UD"
		}
	}
	return ""
}

func splitPrefixes(code []byte, mode int) (prefixes, rest []byte) {
	n := 0
	for n < len(code)-1 && (prefixOf[code[n]] != 0 || mode == 64 && code[n]&0xf0 == 0x40) {
		n++
	}
	return code[:n], code[n:]
}

func isRelative(code []byte) bool {
	switch b := code[0]; {
	case b == 0x0f || b == 0xc7:
		return b == 0x0f && code[1]&0xf0 == 0x80 || b == 0xc7 && code[1] == 0xf8
	default:
		return b&0xf0 == 0x70 || b&0xfc == 0xe0 || b == 0xe8 || b == 0xe9 || b == 0xeb
	}
}

func isVector(code []byte, mode int) bool {
	switch code[0] {
	case 0x8f:
		return code[1]&0x1f >= 8
	case 0xc4, 0xc5, 0x62:
		return mode == 64 || code[1] >= 0xc0
	}
	return false
}

func noneBeforeVector(prefix byte) bool {
	switch prefix {
	case 0x66, 0xf2, 0xf3, 0xf0:
		return true
	}
	return prefix&0xf0 == 0x40
}

// onlyPrefixes tells whether a text is prefixes and nothing else.
func onlyPrefixes(text []byte) bool {
	for _, w := range bytes.Fields(text) {
		switch w := string(w); w {
		case "data16", "addr32", "addr16", "lock", "repz", "repnz", "rep", "cs", "ss", "ds", "es", "fs", "gs", "notrack", "bnd", "xacquire", "xrelease":
		default:
			if !strings.HasPrefix(w, "rex") {
				return false
			}
		}
	}
	return true
}

// compareELF judges all executable sections of a file.
func compareELF(t *testing.T, path string) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mode := 64
	if f.Class == elf.ELFCLASS32 {
		mode = 32
	}
	type section struct {
		addr uint64
		data []byte
	}
	var sections []section
	var names []string
	for _, s := range f.Sections {
		if s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_EXECINSTR != 0 {
			data, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			sections = append(sections, section{s.Addr, data})
			names = append(names, s.Name)
		}
	}
	var in section
	judged, counts := 0, map[string]int{}
	wrong := func(message string) {
		if counts["wrong"]++; counts["wrong"] <= 20 {
			t.Error(message)
		}
	}
	// -D, not -d, which stops at symbols and prints data objects undecoded.
	args := []string{"-D", path}
	for _, name := range names {
		args = append(args, "-j", name)
	}
	misnamed := map[string]int{}
	// cut describes an instruction that we say goes on after cutAt, where objdump's ends. It cuts
	// instructions at symbols, but prints them as if it had not.
	var cut string
	var cutAt uint64
	err = disassemble(args, func(l line) {
		if cut != "" {
			if l.len == 0 && l.addr == cutAt {
				counts["[symbol within an instruction]"]++
			} else {
				wrong(cut)
			}
			cut = ""
		}
		if l.len == 0 {
			return
		}
		for n := 0; l.addr-in.addr >= uint64(len(in.data)); n++ {
			in = sections[n]
		}
		judged++
		code := in.data[l.addr-in.addr:]
		v := judge(l, code, mode)
		if v == "" {
			if want := mnemonic(l.text); !named(code, mode, want) && len(want) > 0 {
				misnamed[string(want)]++
			}
			return
		}
		if v[0] == '[' {
			counts[v]++
			return
		}
		message := fmt.Sprintf("%x: % x: %s: %s", l.addr, code[:l.len], l.text, v)
		if i, err := Decode(code, mode); err == nil && int(i.Len) > l.len {
			cut, cutAt = message, l.addr+uint64(l.len)
			return
		}
		wrong(message)
	})
	if err != nil {
		t.Fatal(err)
	}
	if judged == 0 {
		t.Error("objdump printed no instruction")
	}
	t.Logf("%d instructions, %s", judged, tally(counts))
	if len(misnamed) > 0 {
		t.Errorf("names differ or lack: %s", tally(misnamed))
	}
}

// mnemonic is the text's first word that is no prefix, nil for "(bad)".
func mnemonic(text []byte) []byte {
	for {
		word, rest, more := bytes.Cut(text, []byte(" "))
		switch {
		case len(word) == 0 || word[0] == '(':
			return nil
		case onlyPrefixes(word) && !more:
			return nil
		case !onlyPrefixes(word) && word[0] != '{':
			word, _, _ = bytes.Cut(word, []byte("(")) // fneni(8087 only)
			return word
		}
		text = bytes.TrimLeft(rest, " ")
	}
}

// named tells whether the mnemonic is objdump's, but for those that objdump
// makes of an immediate or operands, and the suffix of size.
func named(code []byte, mode int, want []byte) bool {
	i, err := Decode(code, mode)
	if err != nil {
		return true
	}
	name := i.Name()
	if string(want) == name || i.Prefix != 0 && string(want) == name+"w" {
		return true
	}
	for _, family := range [][2]string{{"cmp", "ps"}, {"cmp", "pd"}, {"cmp", "ss"}, {"cmp", "sd"}, {"vcmp", "ps"}, {"vcmp", "pd"},
		{"vcmp", "ss"}, {"vcmp", "sd"}, {"vcmp", "ph"}, {"vcmp", "sh"}, {"vpcmp", "b"}, {"vpcmp", "w"}, {"vpcmp", "d"}, {"vpcmp", "q"}, {"pclmul", "qdq"}, {"vpclmul", "qdq"}, {"vpcom", ""}} {
		if strings.HasPrefix(name, family[0]) && bytes.HasPrefix(want, []byte(family[0])) && bytes.HasSuffix(want, []byte(family[1])) {
			return true
		}
	}
	return false
}

func tally(counts map[string]int) string {
	var s []string
	for k, n := range counts {
		s = append(s, fmt.Sprintf("%d %s", n, k))
	}
	sort.Strings(s)
	if s == nil {
		return "no difference"
	}
	return strings.Join(s, ", ")
}

// The corpus: programs of the distribution, which setup installs, the Go tool, and programs built
// here with instructions that those lack.
func TestObjdump(t *testing.T) {
	programs := []string{
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
		"/usr/bin/python3", // by its place: the first in PATH may be a script
		"git", "gdb", "node",
	}
	if testing.Short() {
		programs = programs[:1] // the others have many times its code
	}
	for _, name := range programs {
		t.Run(filepath.Base(name), func(t *testing.T) {
			path, err := exec.LookPath(name)
			if errors.Is(err, fs.ErrPermission) {
				path, err = name, nil // a library need not be executable
			}
			if err != nil && os.Getenv("CI") == "" {
				t.Skipf("not on this machine: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			compareELF(t, path)
		})
	}
	goroot := strings.TrimSpace(string(run(t, "go", "env", "GOROOT")))
	goProgram := filepath.Join(goroot, "bin", "go")
	if testing.Short() {
		goProgram = filepath.Join(goroot, "bin", "gofmt")
	}
	t.Run("go", func(t *testing.T) { compareELF(t, goProgram) })

	out := filepath.Join(t.TempDir(), "out")
	for _, b := range []struct{ name, command string }{
		{"cet", "gcc -O2 -fcf-protection=full testdata/oracle/cet.c -o " + out},
		{"avx512", "gcc -O3 -march=sapphirerapids testdata/oracle/avx512.c -o " + out},
		{"static -m32", "gcc -m32 -O2 -static -fcf-protection=full testdata/oracle/cet.c -o " + out},
		{"go 386", "env GOARCH=386 go build -o " + out + " cmd/gofmt"},
	} {
		if testing.Short() && b.name == "go 386" {
			continue // it compiles the standard library
		}
		t.Run(b.name, func(t *testing.T) {
			run(t, strings.Fields(b.command)...)
			compareELF(t, out)
		})
	}
}

func run(t *testing.T, command ...string) []byte {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, &stderr)
	}
	return out
}
