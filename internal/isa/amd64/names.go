package amd64

import (
	"strings"
	"sync"
)

// Name is the mnemonic in Intel's spelling as objdump prints it, without
// operands and prefixes, or "-" where none is known. It is for display.
func (i *Inst) Name() string {
	table := names()
	find := func(enc Enc, pp uint8) string {
		k := effectKey{enc: enc, m: i.Map, pp: pp, opcode: i.Opcode}
		for _, k.part = range i.parts() {
			if name := table[k]; name != "" {
				return name
			}
		}
		return ""
	}
	legacy := func() string {
		if name := find(Legacy, i.PP); name != "" {
			return name
		}
		return find(Legacy, 0) // the prefix is nothing special
	}
	name := find(i.Enc, i.PP)
	if name == "" && i.Enc == EVEX {
		name = find(VEX, i.PP) // the same with more registers
	}
	if name == "" && (i.Enc == VEX || i.Enc == EVEX) {
		if name = legacy(); name != "" {
			name = "v" + name
		}
	}
	if i.Enc == Legacy {
		name = legacy()
	}
	choices := strings.Split(name, "|")
	switch {
	case name == "nop" && i.Map == MapOneByte && (i.Rex&rexB != 0 || i.Prefix&PrefixOpSize != 0):
		return "xchg"
	case name == "nop" && i.Map == MapOneByte && i.Prefix&PrefixRep != 0:
		return "pause"
	case name == "":
		return "-"
	case name == "vzeroupper" && i.VLen == 1:
		return "vzeroall"
	case name == "movabs" && i.AddrSize == 4:
		return "mov"
	case len(choices) == 3: // by operand or address size
		size := i.OpSize
		if i.Opcode == 0xe3 {
			size = i.AddrSize
		}
		return choices[min(size/4, 2)]
	case len(choices) == 2 && i.Rex&rexW != 0:
		return choices[1]
	}
	return choices[0]
}

var names = sync.OnceValue(func() map[effectKey]string {
	table := map[effectKey]string{}
	for _, r := range nameRows {
		enc, m, pps := parseColumn(r.column)
		var keys []effectKey // of the last opcode word
		for _, w := range strings.Fields(r.names) {
			if isOpcodeWord(w) {
				keys = keysOf(enc, m, pps, w)
				continue
			}
			for n, k := range keys {
				table[k] = w
				keys[n] = k.next()
			}
		}
	}
	return table
})

// isOpcodeWord tells "70", "c8-cf", "80/0" and "01:d0" from mnemonics.
func isOpcodeWord(w string) bool {
	isHex := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }
	return len(w) >= 2 && isHex(w[0]) && isHex(w[1]) && (len(w) == 2 || strings.IndexByte("-/:", w[2]) >= 0)
}
