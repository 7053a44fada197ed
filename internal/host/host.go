// Package host is what the controller asks of the system that it runs on itself, where
// systems differ: a stub is spoken to from Linux and from macOS.
package host
