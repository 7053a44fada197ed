package source

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
)

// Op is what an Expr does.
type Op uint8

const (
	OpConst   Op = iota // N
	OpAddr              // N: an address of the file, to which where it is loaded is added
	OpReg               // the register of DWARF's number N, from byte Size on
	OpEntry             // A, as it was when the function was entered
	OpThread            // the address of N in the thread's storage of the module
	OpLoad              // the Size bytes at A
	OpAdd               // A + B
	OpCompute           // What of A and B, or of A alone, as DWARF names operations
)

// Expr is a value or an address, as a computation from registers and memory.
type Expr struct {
	Op   Op
	N    uint64
	Size int
	A, B *Expr
	What string
}

// add is e + n, as short as can be.
func add(e *Expr, n uint64) *Expr {
	switch {
	case n == 0:
		return e
	case e.Op == OpConst || e.Op == OpAddr || e.Op == OpThread:
		c := *e
		c.N += n
		return &c
	case e.Op == OpAdd && e.B.Op == OpConst:
		return add(e.A, e.B.N+n)
	}
	return &Expr{Op: OpAdd, A: e, B: &Expr{Op: OpConst, N: n}}
}

// maxExpr bounds the operations of an expression. Its parts may be shared: a few bytes of debug data, which square a number again and
// again, tell of more than can ever be worked out.
const maxExpr = 1 << 12

// Sane returns errComputation for an expression of more operations than are worked out.
func (e *Expr) Sane() error {
	if e.operations(maxExpr+1) > maxExpr {
		return errComputation
	}
	return nil
}

// operations counts them, up to most.
func (e *Expr) operations(most int) int {
	if e == nil || most <= 0 {
		return 0
	}
	n := 1 + e.A.operations(most-1)
	return n + e.B.operations(most-n)
}

// Add is e moved on by n bytes, which may be negative, as two's complement.
func (e *Expr) Add(n uint64) *Expr { return add(e, n) }

// Location is where a variable is, at one address of the code.
type Location struct {
	Memory *Expr   // it lies at this address
	Value  *Expr   // this is it: in a register, or computed
	Bytes  []byte  // this is it: a constant of any size
	Pieces []Piece // it is in pieces
}

// Piece is a part of a variable; one without location has been optimized out.
type Piece struct {
	Bits uint64
	Location
}

// Known tells whether there is anything.
func (l *Location) Known() bool {
	return l.Memory != nil || l.Value != nil || l.Bytes != nil || len(l.Pieces) > 0
}

// Operations of location expressions (DWARF 5, 7.7.1, and GNU's of before).
const (
	opAddr            = 0x03
	opDeref           = 0x06
	opConst1u         = 0x08
	opConsts          = 0x11
	opDup             = 0x12
	opDrop            = 0x13
	opOver            = 0x14
	opPick            = 0x15
	opSwap            = 0x16
	opPlusUconst      = 0x23
	opLit0            = 0x30
	opReg0            = 0x50
	opBreg0           = 0x70
	opRegx            = 0x90
	opFbreg           = 0x91
	opBregx           = 0x92
	opPiece           = 0x93
	opDerefSize       = 0x94
	opNop             = 0x96
	opFormTLS         = 0x9b
	opCallFrameCFA    = 0x9c
	opBitPiece        = 0x9d
	opImplicitValue   = 0x9e
	opStackValue      = 0x9f
	opImplicitPtr     = 0xa0
	opAddrx           = 0xa1
	opConstx          = 0xa2
	opEntryValue      = 0xa3
	opConstType       = 0xa4
	opRegvalType      = 0xa5
	opDerefType       = 0xa6
	opGNUTLS          = 0xe0
	opGNUImplicit     = 0xf2
	opGNUEntryValue   = 0xf3
	opGNUConstType    = 0xf4
	opGNURegvalType   = 0xf5
	opGNUDerefType    = 0xf6
	opBra             = 0x28
	opSkip            = 0x2f
	opConvert         = 0xa8
	opReinterpret     = 0xa9
	opGNUConvert      = 0xf7
	opGNUReinterpret  = 0xf9
	opGNUParameterRef = 0xfa
	opGNUAddrx        = 0xfb
	opGNUConstx       = 0xfc
)

// machine works out an expression with what is not known yet left as it is.
type machine struct {
	f     *File
	u     *unit
	pc    uint64
	base  func() (*Expr, error) // of the function's frame
	stack []operand
	loc   Location // of the simple kinds
	piece []Piece
	forks int // branches that were followed both ways
}

func (m *machine) push(e *Expr) { m.stack = append(m.stack, operand{e: e}) }

var errStack = errors.New("its location makes no sense")

func (m *machine) pop() (*Expr, error) {
	o, err := m.operand()
	return o.e, err
}

const maxStack = 64

// locate gives what an expression says; nothing of an empty one.
func (m *machine) locate(b []byte) (Location, error) {
	if len(b) == 0 {
		return Location{}, nil
	}
	if err := m.run(b); err != nil {
		return Location{}, err
	}
	if m.piece != nil {
		return Location{Pieces: m.piece}, nil
	}
	return m.part()
}

// part is what the operations since the last piece say.
func (m *machine) part() (Location, error) {
	l := m.loc
	if !l.Known() && len(m.stack) > 0 {
		l.Memory, _ = m.pop()
	}
	m.loc, m.stack = Location{}, nil
	return l, errors.Join(l.Memory.Sane(), l.Value.Sane())
}

// result is the value that operations leave.
func (m *machine) result(b []byte) (*Expr, error) {
	if err := m.run(b); err != nil {
		return nil, err
	}
	e, err := m.pop()
	return e, errors.Join(err, e.Sane())
}

// run works through the operations.
func (m *machine) run(b []byte) error {
	return m.from(m.f.cursor(b, 0))
}

// from works through those from a place on.
func (m *machine) from(c cursor) error {
	for c.pos < len(c.b) {
		if op := c.b[c.pos]; op == opBra || op == opSkip {
			ended, err := m.jump(&c)
			if ended || err != nil {
				return err
			}
			continue
		}
		if err := m.step(&c); err != nil {
			return err
		}
		if c.bad || len(m.stack) > maxStack {
			return errStack
		}
	}
	return nil
}

func (m *machine) step(c *cursor) error {
	op := byte(c.number(1))
	switch {
	case op >= opLit0 && op < opLit0+32:
		m.push(&Expr{Op: OpConst, N: uint64(op - opLit0)})
		return nil
	case op >= opReg0 && op < opReg0+32:
		m.loc.Value = &Expr{Op: OpReg, N: uint64(op - opReg0)}
		return nil
	case op >= opBreg0 && op < opBreg0+32:
		m.push(add(&Expr{Op: OpReg, N: uint64(op - opBreg0)}, uint64(c.sleb())))
		return nil
	case op >= opConst1u && op <= opConsts:
		m.push(&Expr{Op: OpConst, N: constant(c, op)})
		return nil
	}
	switch op {
	case opNop:
	case opAddr:
		m.push(&Expr{Op: OpAddr, N: c.number(m.u.size)})
	case opAddrx, opGNUAddrx:
		v, ok := m.f.addrx(m.u, c.uleb())
		if !ok {
			return errStack
		}
		m.push(&Expr{Op: OpAddr, N: v})
	case opConstx, opGNUConstx:
		v, ok := m.f.addrx(m.u, c.uleb())
		if !ok {
			return errStack
		}
		m.push(&Expr{Op: OpConst, N: v})
	case opRegx:
		m.loc.Value = &Expr{Op: OpReg, N: c.uleb()}
	case opBregx:
		r := c.uleb()
		m.push(add(&Expr{Op: OpReg, N: r}, uint64(c.sleb())))
	case opFbreg:
		n := c.sleb()
		if m.base == nil {
			return errStack
		}
		base, err := m.base()
		if err != nil {
			return err
		}
		m.push(add(base, uint64(n)))
	case opCallFrameCFA:
		cfa, err := m.f.cfa(m.pc, m.u)
		if err != nil {
			return err
		}
		m.push(cfa)
	case opStackValue:
		v, err := m.pop()
		if err != nil {
			return err
		}
		m.loc.Value = v
	case opImplicitValue:
		m.loc.Bytes = append([]byte{}, c.take(int(min(c.uleb(), 1<<20)))...)
	case opPiece, opBitPiece:
		bits := c.uleb()
		if op == opPiece {
			bits *= 8
		} else if c.uleb() != 0 {
			return errors.New("it is in the middle of a register, which is not read")
		}
		l, err := m.part()
		if err != nil {
			return err
		}
		m.piece = append(m.piece, Piece{bits, l})
	case opImplicitPtr, opGNUImplicit:
		return errors.New("it is a pointer that does not exist any more: what it points at was optimized into pieces")
	default:
		return m.compute(c, op)
	}
	return nil
}

func constant(c *cursor, op byte) uint64 {
	switch op {
	case 0x08:
		return c.number(1)
	case 0x09:
		return uint64(int8(c.number(1)))
	case 0x0a:
		return c.number(2)
	case 0x0b:
		return uint64(int16(c.number(2)))
	case 0x0c:
		return c.number(4)
	case 0x0d:
		return uint64(int32(c.number(4)))
	case 0x0e, 0x0f:
		return c.number(8)
	case 0x10:
		return c.uleb()
	}
	return uint64(c.sleb())
}

// compute does the operations on the stack.
func (m *machine) compute(c *cursor, op byte) error {
	if a, ok := arithmetic[op]; ok {
		return m.arithmetic(a)
	}
	switch op {
	case opDeref, opDerefSize:
		size := m.u.size
		if op == opDerefSize {
			size = int(c.number(1))
		}
		a, err := m.pop()
		if err != nil {
			return err
		}
		m.push(&Expr{Op: OpLoad, A: a, Size: size})
	case opDup, opOver, opPick:
		n := map[byte]uint64{opDup: 0, opOver: 1}[op]
		if op == opPick {
			n = c.number(1)
		}
		if n >= uint64(len(m.stack)) {
			return errStack
		}
		m.stack = append(m.stack, m.stack[len(m.stack)-1-int(n)])
	case opDrop:
		_, err := m.pop()
		return err
	case opSwap:
		if n := len(m.stack); n > 1 {
			m.stack[n-1], m.stack[n-2] = m.stack[n-2], m.stack[n-1]
			return nil
		}
		return errStack
	case opPlusUconst:
		a, err := m.pop()
		if err != nil {
			return err
		}
		m.push(add(a, c.uleb()))
	case opFormTLS, opGNUTLS:
		a, err := m.pop()
		if err != nil {
			return err
		}
		if a.Op != OpConst && a.Op != OpAddr {
			return errStack
		}
		m.push(&Expr{Op: OpThread, N: m.f.threadOffset(m.u, a.N)})
	case opEntryValue, opGNUEntryValue:
		inner := machine{f: m.f, u: m.u, pc: m.pc, base: m.base}
		l, err := inner.locate(c.take(int(min(c.uleb(), 1<<16))))
		if err != nil {
			return err
		}
		e := l.Value
		if e == nil {
			e = l.Memory
		}
		if e == nil {
			return errStack
		}
		m.push(&Expr{Op: OpEntry, A: e})
	case opRegvalType, opGNURegvalType, opConstType, opGNUConstType, opDerefType, opGNUDerefType, opConvert, opGNUConvert, opReinterpret, opGNUReinterpret:
		return m.typed(c, op)
	case opGNUParameterRef:
		return errors.New("it is what the caller of the function that this one was made of would have passed, which is not kept")
	default:
		return fmt.Errorf("its location has the operation %#x, which is not known", op)
	}
	return nil
}

// span is an entry of a location list.
type span struct {
	lo, hi uint64 // hi 0: wherever no other holds
	expr   []byte
}

// spans reads a location list.
func (f *File) spans(u *unit, fd *dwarf.Field) ([]span, error) {
	off, ok := fd.Val.(int64)
	if u64, is := fd.Val.(uint64); is {
		off, ok = int64(u64), true
	}
	if !ok {
		return nil, errStack
	}
	if u.gnu {
		return f.splitSpans(u, off)
	}
	if u.version < 5 {
		return f.oldSpans(u, off)
	}
	if fd.Class == dwarf.ClassLocList { // an index into the table at the unit's base
		c := f.cursor(f.sec.loclists, int(u.locBase)+int(off)*u.offsetSize())
		off = int64(u.locBase + c.number(u.offsetSize()))
		if c.bad {
			return nil, errStack
		}
	}
	c := f.cursor(f.sec.loclists, int(off))
	base := u.low
	var out []span
	for !c.bad {
		kind := c.number(1)
		var lo, hi uint64
		index := func() uint64 {
			v, ok := f.addrx(u, c.uleb())
			if !ok {
				c.bad = true
			}
			return v
		}
		switch kind {
		case 0:
			return out, nil
		case 1: // base_addressx
			base = index()
			continue
		case 2: // startx_endx
			lo = index()
			hi = index()
		case 3: // startx_length
			lo = index()
			hi = lo + c.uleb()
		case 4: // offset_pair
			lo = base + c.uleb()
			hi = base + c.uleb()
		case 5: // default_location
		case 6: // base_address
			base = c.number(u.size)
			continue
		case 7: // start_end
			lo = c.number(u.size)
			hi = c.number(u.size)
		case 8: // start_length
			lo = c.number(u.size)
			hi = lo + c.uleb()
		case 9: // GNU's view pair
			c.uleb()
			c.uleb()
			continue
		default:
			return nil, errStack
		}
		out = append(out, span{lo, hi, c.take(int(min(c.uleb(), 1<<20)))})
	}
	return nil, errStack
}

// oldSpans reads a list of DWARF 2 to 4.
func (f *File) oldSpans(u *unit, off int64) ([]span, error) {
	c := f.cursor(f.sec.loc, int(off))
	base := u.low
	highest := ^uint64(0) >> (64 - 8*uint(u.size))
	var out []span
	for !c.bad {
		lo, hi := c.number(u.size), c.number(u.size)
		switch {
		case lo == 0 && hi == 0:
			return out, nil
		case lo == highest:
			base = hi
		default:
			out = append(out, span{base + lo, base + hi, c.take(int(c.number(2)))})
		}
	}
	return nil, errStack
}

// pick is the entry that holds at an address.
func pick(spans []span, pc uint64) ([]byte, bool) {
	for _, s := range spans {
		if s.lo <= pc && pc < s.hi && len(s.expr) > 0 {
			return s.expr, true
		}
	}
	i := slices.IndexFunc(spans, func(s span) bool { return s.hi == 0 && s.lo == 0 })
	if i >= 0 {
		return spans[i].expr, true
	}
	return nil, false
}

// atEntry is an entry of no length, at a function's first instruction: what holds there before what statements without
// code make of it, as a parameter that is counted on at once. Elsewhere such an entry holds nowhere.
func atEntry(spans []span, pc uint64) ([]byte, bool) {
	for _, s := range spans {
		if s.lo == pc && s.hi == pc && len(s.expr) > 0 {
			return s.expr, true
		}
	}
	return nil, false
}
