package image

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/symbol"
	"kprobe/target"
)

// program is a target that is nothing but its memory.
type program struct {
	target.Target
	arch  *arch.Arch
	maps  []symbol.Mapping
	bytes map[arch.Addr][]byte
	reads int
}

func (p *program) Arch() *arch.Arch                { return p.arch }
func (p *program) PID() int                        { return 1 }
func (p *program) Maps() ([]symbol.Mapping, error) { return p.maps, nil }

func (p *program) ReadAt(a arch.Addr, b []byte) error {
	p.reads++
	m := symbol.MappingAt(p.maps, a)
	if m == nil || a+arch.Addr(len(b)) > m.End {
		return syscall.EFAULT
	}
	text := p.bytes[m.Start]
	copy(b, text[a-m.Start:])
	return nil
}

const at = arch.Addr(0x10000)

// anonymous is a program of one executable page in no file.
func anonymous(code []byte) *program {
	page := make([]byte, 4096)
	copy(page, code)
	return &program{arch: arch.AMD64, maps: []symbol.Mapping{{Start: at, End: at + 4096, Exec: true}},
		bytes: map[arch.Addr][]byte{at: page}}
}

func look(t *testing.T, p *program) *Image {
	im, err := New(p, p, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.Look(); err != nil {
		t.Fatal(err)
	}
	if err := im.Forbid([]arch.Blocked{{Start: at + 64, End: at + 80, Symbol: "here", Reason: "so it was said"}}); err != nil {
		t.Fatal(err)
	}
	return im
}

func TestAnalyse(t *testing.T) {
	sigreturn := []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}
	for _, tt := range []struct {
		name string
		code []byte
		at   arch.Addr
		want error
		says string
	}{
		{"an instruction", []byte{0x55}, at, nil, ""},
		{"a breakpoint", []byte{0xcc}, at, syscall.EBUSY, "someone else's"},
		{"no instruction", []byte{0x06}, at, syscall.EILSEQ, "are no instruction: 06"},
		{"a signal trampoline", sigreturn, at, syscall.EINVAL, "signal frames"},
		{"what is forbidden", nil, at + 70, syscall.EINVAL, "so it was said"},
		{"nothing", nil, at + 8192, syscall.EINVAL, "not executable memory"},
	} {
		im := look(t, anonymous(tt.code))
		_, err := im.Analyse(symbol.Loc{Addr: tt.at})
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v; want %v, %q", tt.name, err, tt.want, tt.says)
		}
	}
}

// Shared memory is other processes' text too.
func TestShared(t *testing.T) {
	p := anonymous([]byte{0x55})
	p.maps[0].Shared = true
	im := look(t, p)
	if _, err := im.Place("", at, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("in no file: %v", err)
	}
	if _, err := im.Analyse(symbol.Loc{Addr: at}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("in a shared mapping: %v", err)
	}
}

// Each page is read once, until the program is looked at anew.
func TestReadOnce(t *testing.T) {
	p := anonymous([]byte{0x55, 0x90})
	im := look(t, p)
	b := make([]byte, 1)
	read := func() int {
		was := p.reads
		for a := at; a < at+64; a++ {
			if err := im.Text(a, b); err != nil {
				t.Fatal(err)
			}
		}
		return p.reads - was
	}
	if n := read(); n > 1 {
		t.Errorf("%d reads of one page", n)
	}
	p.bytes[at][63] = 0x42
	if read(); b[0] == 0x42 {
		t.Error("the page was read again")
	}
	if im.Look(); read() == 0 || b[0] != 0x42 {
		t.Error("the page was not read again after a new look")
	}
}

// A trampoline outlives the first function that needs it: it is not in a module that may be
// unloaded, if the program itself has room.
func TestPaddingOfTheProgram(t *testing.T) {
	for _, room := range []bool{true, false} {
		p := anonymous([]byte{0x55, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc})
		own := symbol.Mapping{Start: at + 8192, End: at + 12288, Exec: true}
		p.maps = append(p.maps, own)
		p.bytes[own.Start] = make([]byte, 4096)
		if room {
			copy(p.bytes[own.Start][100:], "\xcc\xcc\xcc\xcc")
		}
		im := look(t, p)
		im.program = func() *symbol.Module { return &symbol.Module{Mappings: []symbol.Mapping{own}} }
		got, err := im.Padding(symbol.Loc{Module: &symbol.Module{Mappings: p.maps[:1]}})
		want := at + 3
		if room {
			want = own.Start + 101
		}
		if err != nil || got != want {
			t.Errorf("with room %v in the program it is at %v, want %v (%v)", room, got, want, err)
		}
	}
}

func TestMachine(t *testing.T) {
	p := anonymous(nil)
	p.arch = &arch.Arch{Name: "pdp11"}
	if _, err := New(p, p, false); !errors.Is(err, syscall.ENOTSUP) {
		t.Errorf("a machine nobody knows: %v", err)
	}
}

// On arm64 there is no probe between a load and a store exclusive; and a place far from its
// module's start is judged by where it is.
func TestAnalyseARM64(t *testing.T) {
	var code []byte
	for _, w := range []uint32{0x11000421, 0x885ffc41, 0x11000421, 0x8800fc41, 0xd65f03c0} { // add, ldaxr, add, stlxr, ret
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	p := anonymous(code)
	p.arch = arch.ARM64
	im := look(t, p)
	for i, says := range []string{"", "it belongs to a load and store exclusive", "between a load and a store exclusive", "it belongs to a load and store exclusive", ""} {
		loc := symbol.Loc{Addr: at + arch.Addr(4*i), Off: 4 * uint64(i), Func: symbol.Symbol{Addr: uint64(at), Size: uint64(len(code))}}
		_, err := im.Analyse(loc)
		if (err != nil) != (says != "") || err != nil && (!errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), says)) {
			t.Errorf("+%d: %v, want %q", 4*i, err, says)
		}
	}
	p = anonymous(code)
	p.arch = arch.ARM64
	page := p.bytes[at]
	const far = 1 << 28
	p.maps[0].Start, p.maps[0].End = at+far, at+far+4096
	p.bytes = map[arch.Addr][]byte{at + far: page}
	im = look(t, p)
	if _, err := im.Analyse(symbol.Loc{Addr: at + far, Module: &symbol.Module{Start: at}}); err != nil {
		t.Error("far from its module's start: ", err)
	}
}
