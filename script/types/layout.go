package types

// Laying lays the members of a record out as C does (the psABI's, of machines of 64 bits).
type Laying struct {
	Record        *Type
	Packed, Union bool

	align, bits int // bits: behind Record.Size, of the bit-fields that are under way
}

// Add gives it one member more.
func (l *Laying) Add(name string, t *Type) {
	l.Record.Add(Field{Name: name, Type: t, Offset: l.place(t.Size, t.Align())})
}

func (l *Laying) place(size, to int) (at int) {
	r := l.Record
	if l.Packed {
		to = 1
	}
	l.align = max(l.align, to)
	if l.Union {
		r.Size = max(r.Size, size)
		return 0
	}
	if l.bits > 0 {
		r.Size += (l.bits + 7) / 8
		l.bits = 0
	}
	at = (r.Size + to - 1) / to * to
	r.Size = at + size
	return at
}

// AddBits gives it a bit-field; one without a name takes room, and is no member.
func (l *Laying) AddBits(name string, t *Type, width int) {
	r := l.Record
	start := 8*r.Size + l.bits
	if l.Union {
		start = 0
	}
	if unit := 8 * t.Size; width == 0 || start/unit != (start+width-1)/unit {
		start = (start + unit - 1) / unit * unit
	}
	if !l.Union {
		l.bits = start + width - 8*r.Size
	} else {
		r.Size = max(r.Size, t.Size)
	}
	l.align = max(l.align, t.Align())
	at := start / (8 * t.Size) * t.Size
	if name != "" {
		r.Fields = append(r.Fields, Field{Name: name, Type: t, Offset: at, BitOff: start - 8*at, BitSize: width})
	}
}

// Done gives it its size.
func (l *Laying) Done() {
	r, align := l.Record, max(l.align, 1)
	r.Size += (l.bits + 7) / 8
	if !l.Packed {
		r.Size = (r.Size + align - 1) / align * align
	}
	r.Len = align
}
