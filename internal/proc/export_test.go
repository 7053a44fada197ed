package proc

// The two ways of Present.
var Scan, Look = scan, look
