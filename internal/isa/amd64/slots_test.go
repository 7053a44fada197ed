package amd64

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/isa"
)

// Every kind of instruction from its slot against the same in its place.

// instructions64 is in the assembler's Intel syntax. Operands relative to RIP
// are aimed at the data page before they run.
const instructions64 = `
add eax, ebx
adc rax, [rbx]
sub byte ptr [rdi+rcx*2], 5
imul rdx, [rsi+8], 1000
mul rbx
div rbx
idiv ecx
neg qword ptr [rdi]
shl rdx, cl
shrd rax, rbx, 7
rcl qword ptr [rsi], 1
bt [rdi], eax
bts qword ptr [rip+0x100], 17
bsr rax, rbx
popcnt rax, [rip+0x100]
bswap r9
xchg rax, rbx
xchg [rsi], rdx
lock xadd [rdi], eax
lock cmpxchg [rip+0x100], rbx
cmpxchg16b [rip+0x100]
cmpxchg8b [rsi]
movbe rax, [rip+0x100]
crc32 eax, byte ptr [rip+0x100]
lahf
sahf
xlatb
cbw
cqo
clc
cmc
std
nop
nop word ptr [rip+0x100]
endbr64
pause
mfence
ud2
ud1 eax, [rip+0x100]
hlt
in al, dx
cli
rdmsr
int1
int 5
mov eax, ds
mov ss, eax
mov cr0, rax
lea rax, [rip+0x100]
lea r11, [rip-0x100]
lea r8d, [rip+0x100]
lea cx, [rip+0x100]
lea eax, [eip+0x100]
lea rax, [rbx+rcx*4+0x1234]
mov rax, [rip+0x100]
mov [rip+0x100], r9
mov dword ptr [rip+0x100], 0x12345678
mov byte ptr [rip+0x100], 7
mov word ptr [rip+0x100], 0x1234
cmp dword ptr [rip+0x100], 0x11223344
cmp byte ptr [rip+0x100], 4
test qword ptr [rip+0x100], 0x7f
imul eax, [rip+0x100], 12345
imul eax, [rip+0x100], 12
mov eax, [eip+0x100]
add dword ptr [eip+0x100], 3
mov rax, fs:[8]
mov rax, gs:[rbx]
mov rax, fs:[rip+0x100]
movabs rax, 0x1122334455667788
movabs al, [0x1122334455667788]
mov eax, [0x20000400]
movzx ecx, byte ptr [rip+0x100]
movsxd rax, dword ptr [rip+0x100]
cmovl rax, [rip+0x100]
cmovnz eax, ebx
sete byte ptr [rip+0x100]
setg al
push rbp
push rsp
push r15
push 5
push 0x12345678
push word ptr [rdi]
push [rip+0x100]
push [rsp+8]
push [rsp]
push fs
pop rbp
pop rsp
pop word ptr [rdi]
pop [rip+0x100]
pop [rsp]
pop [rsp+8]
pushfq
popfq
pushfw
enter 32, 0
enter 32, 3
leave
mov rbp, rsp
sub rsp, 0x40
and rsp, -16
add rsp, 8
mov rax, [rsp+0x10]
mov [rsp-8], rax
movsb
movsq
rep movsb
rep movsq
rep stosd
lodsw
repe cmpsb
repne scasb
repne scasd
rep movs dword ptr es:[edi], dword ptr [esi]
movaps xmm1, [rip+0x100]
movups [rip+0x100], xmm9
addsd xmm3, [rip+0x100]
cvtsi2sd xmm0, qword ptr [rip+0x100]
ucomisd xmm0, [rip+0x100]
pshufb xmm2, [rip+0x100]
pcmpistri xmm1, [rip+0x100], 0x1a
roundsd xmm1, [rip+0x100], 3
pinsrb xmm1, byte ptr [rip+0x100], 3
movq rax, xmm5
movd [rip+0x100], xmm2
aesenc xmm1, [rip+0x100]
sha256rnds2 xmm1, [rip+0x100]
ldmxcsr [rip+0x100]
stmxcsr [rip+0x100]
paddd mm1, [rip+0x100]
emms
vaddps ymm1, ymm2, [rip+0x100]
vmovdqa ymm1, [rip+0x100]
vmovdqu [rip+0x100], ymm11
vpermq ymm3, [rip+0x100], 0x1b
vpblendvb xmm1, xmm2, [rip+0x100], xmm4
vbroadcastss ymm1, dword ptr [rip+0x100]
vzeroupper
vpgatherdd xmm1, [rbx+xmm2*4], xmm3
andn rax, rbx, [rip+0x100]
shlx rax, [rip+0x100], rcx
rorx rax, [rip+0x100], 9
mulx rax, rbx, [rip+0x100]
adcx rax, [rip+0x100]
vmovdqu64 zmm17, [rip+0x100]
vmovdqu64 [rip+0x100], zmm17
vaddpd zmm1{k1}{z}, zmm2, [rip+0x100]
vpternlogd ymm18, ymm19, [rip+0x100], 0x96
vpaddd zmm1, zmm2, dword ptr [rip+0x100]{1to16}
kmovq k1, [rip+0x100]
vpcmpub k2, zmm0, [rip+0x100], 1
fld qword ptr [rip+0x100]
fstp tbyte ptr [rip+0x100]
fadd st, st(3)
fild word ptr [rip+0x100]
fcomi st, st(1)
fnstcw [rip+0x100]
fnstsw ax
fsin
prefetcht0 [rip+0x100]
clflush [rip+0x100]
movnti [rip+0x100], eax
movdir64b rax, [rip+0x100]
xgetbv
rdfsbase rax
jo .+0x30
jno .+0x30
jb .+0x30
jae .+0x30
je .+0x30
jne .+0x30
jbe .+0x30
ja .+0x30
js .+0x30
jns .+0x30
jp .+0x30
jnp .+0x30
jl .+0x30
jge .+0x30
jle .+0x30
jg .+0x30
{disp32} jo .-0x130
{disp32} jno .-0x130
{disp32} jb .-0x130
{disp32} jae .-0x130
{disp32} je .-0x130
{disp32} jne .-0x130
{disp32} jbe .-0x130
{disp32} ja .-0x130
{disp32} js .-0x130
{disp32} jns .-0x130
{disp32} jp .-0x130
{disp32} jnp .-0x130
{disp32} jl .-0x130
{disp32} jge .-0x130
{disp32} jle .-0x130
{disp32} jg .-0x130
ds jne .+0x30
bnd je .+0x30
loop .-0x20
loope .-0x20
loopne .-0x20
addr32 loop .-0x20
addr32 loope .-0x20
jrcxz .+0x40
jecxz .+0x40
jmp .+0x40
{disp32} jmp .-0x200
bnd jmp .+0x40
call .+0x123
call .+5
addr32 call .+0x123
data16 rex.W call .+0x123
bnd call .+0x123
call rax
call r12
call rbp
call rsp
call [rip+0x100]
data16 rex.W call [rip+0x100]
call [eip+0x100]
call [rax]
call [rbp-8]
call [r13+0x10]
call [r12]
call [rbx+rcx*8]
call [rbx+rcx*8+0x100]
call [rcx*8+0x20000400]
call [rsp]
call [rsp+8]
call [rsp+0x78]
call [rsp+0x100]
call [rsp-8]
call [rsp-4]
call [rsp-0x10]
call [rsp-0x80]
call [rsp+rcx*8]
call [esp+8]
call [0x20000400]
call fs:[0x20]
call fs:[rip+0x100]
call gs:[rsp+8]
notrack call rdx
bnd call [rax]
jmp rax
jmp r13
jmp rsp
jmp [rip+0x100]
jmp [rax]
jmp [rsp+8]
jmp [r12+rcx*8]
jmp [rbp+rcx*8+0x100]
jmp fs:[0x10]
jmp [eip+0x100]
notrack jmp rdx
notrack jmp [rip+0x100]
bnd jmp rax
ret
rep ret
bnd ret
ret 0x18
retfd
retfq
retfd 0x10
iretq
iretd
iretw
jmp fword ptr [rax]
jmp fword ptr [rip+0x100]
xbegin .+0x40
xend
`

const instructions32 = `
add eax, [ebx]
inc ecx
dec dword ptr [esi]
push ebp
push cs
pop ds
pusha
popa
lea eax, [ebx+ecx*4+8]
mov eax, [0x20000400]
mov al, [bx+si]
daa
aam
bound eax, [ebx]
into
arpl [eax], bx
les eax, [ebx]
rep movsd
push 5
pushf
popf
leave
enter 16, 1
jne .+0x30
{disp32} jl .-0x130
loop .-0x20
addr16 loop .-0x20
addr16 loope .-0x20
jecxz .+0x20
jcxz .+0x20
jmp .+0x40
{disp32} jmp .-0x200
call .+0x123
call .+5
call eax
call esp
call [eax]
call [esp]
call [esp+4]
call [esp-4]
call [esp-8]
call [esp+ecx*4+0x7c]
call [0x20000400]
call fs:[0x20000400]
jmp gs:[0x20000400]
jmp edx
jmp [esp+4]
jmp [eax+ecx*4]
ret
ret 8
retf
iret
jmp fword ptr [eax]
jmp 0x23:0x10000200
vaddps ymm1, ymm2, [eax]
movaps xmm1, [ebx]
`

// assemble has the GNU assembler make one section of each line.
func assemble(t *testing.T, flag, lines string) (text []string, code [][]byte) {
	t.Helper()
	as, err := exec.LookPath("as")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("needs the GNU assembler: ", err)
	}
	var src strings.Builder
	src.WriteString(".intel_syntax noprefix\n")
	for _, l := range strings.Split(strings.TrimSpace(lines), "\n") {
		fmt.Fprintf(&src, ".section i%d, \"ax\"\n%s\n", len(text), l)
		text = append(text, l)
	}
	obj := filepath.Join(t.TempDir(), "i.o")
	cmd := exec.Command(as, flag, "-o", obj, "-")
	cmd.Stdin = strings.NewReader(src.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as: %v\n%s", err, out)
	}
	f, err := elf.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range text {
		b, err := f.Section(fmt.Sprintf("i%d", i)).Data()
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, b)
	}
	return text, code
}

// aim makes a relative memory operand refer to the data page.
func (w *world) aim(code []byte, rng *rand.Rand) {
	in, err := Decode(code, w.mode)
	if err != nil || !in.relOperand() {
		return
	}
	to := w.data + 1024 + arch.Addr(rng.IntN(32)*64)
	rel := int64(to - w.instrAt - arch.Addr(in.Len))
	binary.LittleEndian.PutUint32(code[in.PCRelOff:], uint32(rel))
}

// trial runs the instruction from the state s every way that its verdict allows, and describes the
// first mistake. It gives the verdict of the near slot.
func (w *world) trial(t *testing.T, n *native, code []byte, s *state) (isa.Verdict, error) {
	t.Helper()
	near, err := w.machine().Place(code, w.instrAt, w.near)
	if err != nil || near.Kind == isa.Refuse {
		return near, err
	}
	ptrSize := w.machine().Arch().PtrSize
	if w.underPush(code, s) {
		return near, nil
	}
	want := n.run(t, s, piece{w.instrAt, code})
	if sp := int64(want.regs[arch.SP]); !n.anyStack && sp != sp<<16>>16 {
		return near, nil // the breakpoint behind it is reported as one signal or another
	}
	w.unpush(code, s, want)

	// In the slots' runs the place holds a trap, as it will with a probe. It is not among the traps
	// that native.run steps back from: a thread that comes to it by mistake is one byte off.
	armed := append([]byte{0xcc}, code[1:]...)
	inSlot := func(what string, slot arch.Addr, v *isa.Verdict, slotCode []byte) error {
		from := s.clone()
		from.regs[arch.IP] = uint64(slot)
		got := n.run(t, from, piece{slot, slotCode}, piece{w.instrAt, armed})
		if err := translate(s, got, slot, v, ptrSize); err != nil {
			return fmt.Errorf("%s slot % x: %w", what, slotCode, err)
		}
		if in, _ := Decode(code, w.mode); in.Map == MapOneByte && in.Opcode == 0xc7 && in.Flow == isa.CondJump {
			// xbegin: why a transaction aborted depends on the CPU and its caches.
			got.regs[arch.AX] = want.regs[arch.AX]
		}
		if d := want.differs(got); d != "" {
			return fmt.Errorf("%s slot % x: %s", what, slotCode, d)
		}
		return nil
	}
	if near.Code != nil {
		if err := inSlot("near", w.near, &near, near.Code); err != nil {
			return near, err
		}
	}
	if near.Body < len(near.Code) {
		// With a post-handler a trap follows the body: the page is full of them.
		if err := inSlot("trapping", w.near, &near, near.Code[:near.Body]); err != nil {
			return near, err
		}
	} else if near.Emulate == nil {
		return near, errors.New("leaves by itself and has no emulation")
	}
	far, err := w.machine().Place(code, w.instrAt, w.far)
	if err != nil {
		return near, err
	}
	if far.Code != nil {
		if err := inSlot("far", w.far, &far, far.Code); err != nil {
			return near, err
		}
	}
	if near.Emulate != nil {
		if err := w.emulated(&near, s, want); err != nil {
			return near, fmt.Errorf("emulation: %w", err)
		}
	}
	return near, nil
}

// unpush takes a word back that a call which failed has left below the stack
// pointer. Intel's CPUs store the return address before they find that there is
// no code to call, AMD's after; a slot's push is taken back on both.
func (w *world) unpush(code []byte, before, after *state) {
	in, err := Decode(code, w.mode)
	if err != nil || in.Flow != isa.Call && in.Flow != isa.IndirectCall || after.regs[arch.IP] != before.regs[arch.IP] {
		return
	}
	word := uint64(w.machine().Arch().PtrSize)
	if at := before.regs[arch.SP] - uint64(w.stack) - word; at <= pageSize-word {
		copy(after.stack[at:at+word], before.stack[at:])
	}
}

// underPush tells that it is the case which the slot of an indirect call is
// known to get wrong: registers happen to lead its operand into the word that
// the call pushes to.
func (w *world) underPush(code []byte, s *state) bool {
	in, err := Decode(code, w.mode)
	if err != nil || in.Flow != isa.IndirectCall || in.ModRM>>6 == 3 {
		return false
	}
	m := w.machine().(*machine)
	p := placement{machine: m, in: in, raw: code}
	if in.PCRel {
		p.target = m.target(&in, w.instrAt)
	}
	o := p.operand()
	a, err := m.address(&o, &s.regs)
	word, sp := arch.Addr(m.facts.PtrSize), s.regs.Addr(arch.SP)
	return err == nil && a < sp && a+word > sp-word && (o.base != arch.SP || o.index != arch.NoReg)
}

func (w *world) emulated(v *isa.Verdict, s, want *state) error {
	got := s.clone()
	landings := bytes.Repeat([]byte{0xcc}, pageSize)
	err := v.Emulate(&got.regs, &stateMemory{w, got, landings})
	switch {
	case errors.Is(err, errFar), errors.Is(err, errFlags):
		want = s // only the CPU can do that
	case err != nil && want.regs[arch.IP] != s.regs[arch.IP]:
		return fmt.Errorf("%w, but the CPU can", err)
	}
	got.regs[arch.FLAGS] &^= w.nativeProc.unseen
	// The events at the place where it went are not its affair.
	got.signal, got.sigCode, got.sigAddr, got.vector = want.signal, want.sigCode, want.sigAddr, want.vector
	if d := want.differs(got); d != "" {
		return errors.New(d)
	}
	return nil
}

func TestSlotsAgainstCPU(t *testing.T) {
	text, code := assemble(t, "--64", instructions64)
	for _, w := range worlds64 {
		testSlots(t, w, text, code)
	}
}

func TestSlotsAgainstCPU32(t *testing.T) {
	text, code := assemble(t, "--32", instructions32)
	testSlots(t, world32, text, code)
}

// effort is for long runs; the tests' default is a matter of seconds.
var effort = flag.Int("effort", 1, "multiplies the trials of instructions against the CPU")

func testSlots(t *testing.T, w *world, text []string, code [][]byte) {
	n := w.open(t)
	states := 20 // of each instruction
	if testing.Short() {
		states = 8
	}
	for i, l := range text {
		t.Run(w.name+"/"+l, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range states * *effort {
				w.aim(code[i], rng)
				s := w.random(n, rng)
				v, err := w.trial(t, n, code[i], s)
				if err != nil {
					t.Fatalf("% x: %v", code[i], err)
				}
				if v.Kind == isa.Refuse {
					t.Fatalf("% x: refused: %s", code[i], v.Reason)
				}
			}
		})
	}
}

// A fault between the push and the jump of a call belongs to the call, and the
// push has not been.
func TestFaultInCallSlot(t *testing.T) {
	const nowhere, segv = 0x123456000, 11
	w := highWorld
	n := w.open(t)
	s := w.random(n, rand.New(rand.NewPCG(9, 10)))
	s.regs[arch.AX] = nowhere
	code := []byte{0xff, 0x10} // call [rax]
	v, err := w.trial(t, n, code, s)
	if err != nil {
		t.Fatal(err)
	}
	from := s.clone()
	from.regs[arch.IP] = uint64(w.near)
	got := n.run(t, from, piece{w.near, v.Code})
	if got.signal != segv || got.sigAddr != nowhere || got.regs[arch.SP] != s.regs[arch.SP]-8 ||
		got.regs[arch.IP] != uint64(w.near)+x86.PushImmLen+storeSPLen {
		t.Errorf("signal %d at %v, sp %#x, ip %#x", got.signal, got.sigAddr, got.regs[arch.SP], got.regs[arch.IP])
	}
}

// System calls: the one instruction whose slot differs from a copy without
// having an operand or a branch.
func TestSyscallSlot(t *testing.T) {
	const getpid64, getpid32, noSuchCall = 39, 20, 100000
	for _, w := range worlds64 {
		n := w.open(t)
		for _, c := range []struct {
			code []byte
			call uint64
		}{
			{[]byte{0x0f, 0x05}, getpid64},
			{[]byte{0x0f, 0x05}, noSuchCall},
			{[]byte{0x48, 0x0f, 0x05}, getpid64},
			{[]byte{0xcd, 0x80}, getpid32},
			{[]byte{0x2e, 0xcd, 0x80}, noSuchCall},
		} {
			s := w.random(n, rand.New(rand.NewPCG(2, c.call)))
			s.regs[arch.AX] = c.call
			if v, err := w.trial(t, n, c.code, s); err != nil || v.Kind != isa.Copy {
				t.Errorf("% x: %v %v", c.code, v.Kind, err)
			}
		}
	}
}

// unrepeatable tells that running the instruction twice gives two results, or
// does something to the process that a state does not hold.
func unrepeatable(in *Inst, code []byte, pc arch.Addr) bool {
	reg := in.ModRM >> 3 & 7
	switch {
	case in.Flow == isa.Syscall, in.Flow == isa.Trap && in.Opcode == 0xcd && code[in.ImmOff] == 0x80:
		return true // a call of the kernel at random
	case in.Enc != Legacy:
		return false
	case in.Map == Map0F && in.Opcode == 0x31, in.Map == Map0F && in.Opcode == 0xa2: // rdtsc, cpuid
		return true
	case in.Map == Map0F && in.Opcode == 0x01: // rdtscp, wrpkru, sgdt
		return true
	case in.Map == Map0F && in.Opcode == 0x00, in.Map == Map0F && in.Opcode == 0x03: // sldt, lsl (the CPU's number)
		return true
	case in.Map == Map0F && in.Opcode == 0xc7 && in.ModRM>>6 == 3 && reg >= 6: // rdrand, rdseed, rdpid
		return true
	case in.PCRel && in.Flow != isa.Next:
		to := pc + arch.Addr(in.Len) + arch.Addr(in.Rel)
		return to >= pc && to < pc+arch.Addr(in.Len) // a loop for ever, or into itself
	}
	return false
}

// Instructions as a real library has them, from its own text.
func TestSlotsOfLibc(t *testing.T) {
	const file = "/lib/x86_64-linux-gnu/libc.so.6"
	samples := 10000
	if testing.Short() {
		samples = 1500
	}
	f, err := elf.Open(file)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("needs Debian's libc: ", err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	w := highWorld
	n := w.open(t)
	seen := map[string]bool{}
	refused := map[string]int{}
	var starts []int
	for off := 0; off < len(text); {
		in, err := Decode(text[off:], 64)
		if err != nil {
			off++
			continue
		}
		key := string(text[off : off+int(in.Len)])
		if !seen[key] {
			if err := checkPlace(ISA, text[off:], w.instrAt, w.near); err != nil {
				t.Errorf("% x: %v", key, err)
			}
		}
		if !seen[key] && !unrepeatable(&in, text[off:], w.instrAt) {
			starts = append(starts, off)
		}
		seen[key] = true
		off += int(in.Len)
	}
	rng.Shuffle(len(starts), func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
	ran := min(samples**effort, len(starts))
	for i, off := range starts[:ran] {
		in, _ := Decode(text[off:], 64)
		code := append([]byte(nil), text[off:off+int(in.Len)]...)
		if i%2 == 0 {
			w.aim(code, rng)
		}
		s := w.random(n, rng)
		v, err := w.trial(t, n, code, s)
		if err != nil {
			t.Errorf("% x: %v", code, err)
		}
		if v.Kind == isa.Refuse {
			refused[v.Reason]++
		}
	}
	t.Logf("%d of %d different instructions ran, refused: %v", ran, len(starts), refused)
}

// Bytes at random, to meet the encodings that no compiler makes.
func TestSlotsOfRandomBytes(t *testing.T) {
	trials := 8000
	if testing.Short() {
		trials = 1200
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, w := range here(t, lowWorld, world32) {
		n := w.open(t)
		ran := 0
		for range trials * *effort {
			code := make([]byte, 15)
			for i := range code {
				code[i] = byte(rng.Uint32())
			}
			in, err := Decode(code, w.mode)
			if err != nil || unrepeatable(&in, code, w.instrAt) {
				continue
			}
			code = code[:in.Len]
			w.aim(code, rng)
			ran++
			if _, err := w.trial(t, n, code, w.random(n, rng)); err != nil {
				t.Errorf("%s: % x: %v", w.name, code, err)
			}
		}
		t.Logf("%s: %d instructions ran", w.name, ran)
	}
}
