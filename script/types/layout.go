package types

// Laying lays the members of a record out as C does (the psABI's, of machines of 64 bits).
type Laying struct {
	Record        *Type
	Packed, Union bool

	align, bits int // bits: behind Record.Size, of the bit-fields that are under way
}

// Align has it lie on multiples of n at least.
func (l *Laying) Align(n int) { l.align = max(l.align, n) }

// Add gives it one member more, which may be packed by itself, or lie on multiples of aligned at least.
func (l *Laying) Add(name string, t *Type, packed bool, aligned int) {
	to := t.Align()
	if packed || l.Packed {
		to = 1
	}
	l.Record.Add(Field{Name: name, Type: t, Offset: l.place(t.Size, max(to, aligned))})
}

func (l *Laying) place(size, to int) (at int) {
	r := l.Record
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

// AddBits gives it a bit-field; one without a name takes room, and is no member: its type aligns nothing.
func (l *Laying) AddBits(name string, t *Type, width int) {
	r := l.Record
	start, unit := 8*r.Size+l.bits, 8*t.Size
	switch {
	case l.Union:
		start = 0
	case width == 0, !l.Packed && start/unit != (start+width-1)/unit:
		start = (start + unit - 1) / unit * unit
	}
	if l.Union {
		r.Size = max(r.Size, (width+7)/8)
	} else {
		l.bits = start + width - 8*r.Size
	}
	if name == "" {
		return
	}
	if !l.Packed {
		l.align = max(l.align, t.Align())
	}
	r.Fields = append(r.Fields, BitField(name, t, start, width))
}

// Done gives it its size.
func (l *Laying) Done() {
	r, align := l.Record, max(l.align, 1)
	r.Size += (l.bits + 7) / 8
	r.Size = (r.Size + align - 1) / align * align
	r.Len = align
}
