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

	PartValue = "*"   // has no name of its own: the target of a pointer
	PartMore  = "..." // there is more than is read
)
