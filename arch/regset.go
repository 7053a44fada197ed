package arch

// RegSet is a set of registers: a bit for each general register, by its number. A machine may use
// the bits of numbers that no general register has for other kinds.
type RegSet uint64

// SetOf is the set of one register.
func SetOf(r Reg) RegSet { return 1 << r }

// Has tells whether a register is in the set.
func (s RegSet) Has(r Reg) bool { return s&SetOf(r) != 0 }
