//go:build linux

// Package seccomp runs filters of system calls (seccomp(2), SECCOMP_SET_MODE_FILTER) on calls that nobody has made, to tell whether
// they would be allowed.
package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Input is the kernel's struct seccomp_data in words: the call's number, the
// machine, the instruction's address, six arguments.
type Input struct {
	Word    [16]uint32
	Unknown []int // words that may be anything
}

// Words of an Input.
const (
	Call, Machine = 0, 1
	Args          = 4 // two words each
)

// Filter is a program of the classic BPF.
type Filter []unix.SockFilter

// Allows runs the filter. What it does not understand, or what depends on words that
// are not known, is not allowed.
func (f Filter) Allows(in *Input) bool {
	const mode, size, class, source = 0xe0, 0x18, 0x07, 0x08
	var a, x uint32
	var mem [16]uint32
	for pc := 0; pc < len(f); pc++ {
		i := f[pc]
		operand := i.K
		if i.Code&source != 0 && (i.Code&class == unix.BPF_ALU || i.Code&class == unix.BPF_JMP) {
			operand = x
		}
		switch i.Code & class {
		case unix.BPF_LD, unix.BPF_LDX:
			var v uint32
			switch {
			case i.Code&size != unix.BPF_W:
				return false
			case i.Code&mode == unix.BPF_IMM:
				v = i.K
			case i.Code&mode == unix.BPF_LEN:
				v = uint32(4 * len(in.Word))
			case i.Code&mode == unix.BPF_MEM && i.K < uint32(len(mem)):
				v = mem[i.K]
			case i.Code == unix.BPF_LD|unix.BPF_W|unix.BPF_ABS && i.K%4 == 0 && i.K/4 < uint32(len(in.Word)) && !slices.Contains(in.Unknown, int(i.K/4)):
				v = in.Word[i.K/4]
			default:
				return false
			}
			if i.Code&class == unix.BPF_LD {
				a = v
			} else {
				x = v
			}
		case unix.BPF_ST, unix.BPF_STX:
			if i.K >= uint32(len(mem)) {
				return false
			}
			mem[i.K] = a
			if i.Code&class == unix.BPF_STX {
				mem[i.K] = x
			}
		case unix.BPF_ALU:
			switch i.Code & 0xf0 {
			case unix.BPF_ADD:
				a += operand
			case unix.BPF_SUB:
				a -= operand
			case unix.BPF_MUL:
				a *= operand
			case unix.BPF_DIV:
				if operand == 0 {
					return false
				}
				a /= operand
			case unix.BPF_AND:
				a &= operand
			case unix.BPF_OR:
				a |= operand
			case unix.BPF_XOR:
				a ^= operand
			case unix.BPF_LSH:
				a <<= operand & 31
			case unix.BPF_RSH:
				a >>= operand & 31
			case unix.BPF_NEG:
				a = -a
			default:
				return false
			}
		case unix.BPF_JMP:
			var taken bool
			switch i.Code & 0xf0 {
			case unix.BPF_JA:
				if i.K >= uint32(len(f)) {
					return false
				}
				pc += int(i.K)
				continue
			case unix.BPF_JEQ:
				taken = a == operand
			case unix.BPF_JGT:
				taken = a > operand
			case unix.BPF_JGE:
				taken = a >= operand
			case unix.BPF_JSET:
				taken = a&operand != 0
			default:
				return false
			}
			if taken {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		case unix.BPF_RET:
			verdict := i.K
			if i.Code&0x18 == unix.BPF_A {
				verdict = a
			}
			const action, allow, log = 0xffff0000, 0x7fff0000, 0x7ffc0000
			return verdict&action == allow || verdict&action == log
		case unix.BPF_MISC:
			if i.Code&0xf8 == unix.BPF_TXA {
				a = x
			} else {
				x = a
			}
		}
	}
	return false
}
