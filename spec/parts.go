package spec

// A value that has parts is an argument for each of these, which events put together again
// (event.Fold). A part's name is the way to it: the argument's name, and those of members and "[N]"
// of elements, with PartSep between. Some parts are not shown, but say how others are:
const (
	PartSep = "\x1f"

	// PartTag tells which variant is there: a number, of which 0 stands for none, or a name. The
	// parts of a variant have that name in their ways.
	PartTag = "?"

	// PartCount tells how many elements there are; "#N" that it counts what N make an element of.
	PartCount = "#"

	// PartSparse tells that of the places for elements some are empty, and that elements are
	// wrapped.
	PartSparse = "%"

	// PartLow and PartHigh are the halves of a number of more than 8 bytes. The name of the lower one,
	// which is the first, goes on with the number's format.
	PartLow  = "<"
	PartHigh = ">"

	PartValue = "*"   // has no name of its own: the target of a pointer
	PartMore  = "..." // there is more than is read
)

// The formats of numbers of more than 8 bytes.
const (
	WideSigned   = "s128"
	WideUnsigned = "u128"
	WideX87      = "f80"  // x87's of 10 bytes: long double of x86
	WideQuad     = "f128" // IEEE 754's binary128: long double of other machines
)
