package machine_test

import (
	"testing"

	"kprobe/arch"
	"kprobe/script/machine"
)

// Registers have the names of scripts of their machine, and no others.
func TestRegister(t *testing.T) {
	for _, tt := range []struct {
		m    *arch.Arch
		name string
		want int
	}{
		{nil, "rdi", 14}, {arch.AMD64, "di", 14}, {arch.AMD64, "flags", 18}, {arch.I386, "sp", 19}, {arch.AMD64, "pc", 16}, {arch.AMD64, "ip", 16}, {arch.I386, "fp", 4}, {arch.AMD64, "x0", -1}, {arch.AMD64, "", -1},
		{arch.ARM64, "x0", 0}, {arch.ARM64, "r7", 7}, {arch.ARM64, "lr", 30}, {arch.ARM64, "fp", 29}, {arch.ARM64, "sp", 31}, {arch.ARM64, "pc", 32},
		{arch.ARM64, "rdi", -1}, {arch.ARM64, "x31", -1}, {arch.ARM64, "", -1}, {arch.ARM64, "r", -1},
	} {
		if got := machine.Of(tt.m).Register(tt.name); got != tt.want {
			t.Errorf("%v: %q is word %d, not %d", tt.m, tt.name, got, tt.want)
		}
	}
	for _, m := range []*machine.Machine{machine.AMD64, machine.ARM64} {
		for _, name := range append([]string{m.Result, m.SP}, m.Args...) {
			if m.Register(name) < 0 {
				t.Errorf("%s has no %s", m.Name, name)
			}
		}
	}
}
