package kernel

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

const (
	maxImage = 256 << 20 // bytes of a kernel; those of distributions have some 60 MB
	minImage = 1 << 20   // less is something else that the boot image carries
	maxTries = 64        // of places that look like packed data
)

// method is a way in which kernels are packed (CONFIG_KERNEL_GZIP and so on).
type method struct {
	name  string
	magic string
	open  func(io.Reader) (io.Reader, error)
}

var methods = []method{
	{"gzip", "\x1f\x8b\x08", func(r io.Reader) (io.Reader, error) {
		z, err := gzip.NewReader(r)
		if err == nil {
			z.Multistream(false)
		}
		return z, err
	}},
	{"xz", "\xfd7zXZ\x00", func(r io.Reader) (io.Reader, error) {
		return xz.ReaderConfig{DictCap: 64 << 20, SingleStream: true}.NewReader(r)
	}},
	{"zstd", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
	}},
	{"lz4", "\x02\x21\x4c\x18", func(r io.Reader) (io.Reader, error) { return &lz4{r: r}, nil }},
	{"bzip2", "BZh91AY&SY", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	// The properties lc=3 lp=0 pb=2 and a dictionary of a power of two.
	{"lzma", "\x5d\x00\x00\x80\x00", lzmaReader}, {"lzma", "\x5d\x00\x00\x00\x01", lzmaReader}, {"lzma", "\x5d\x00\x00\x00\x02", lzmaReader}, {"lzma", "\x5d\x00\x00\x00\x04", lzmaReader},
	{"lzo", "\x89LZO\x00\r\n\x1a\n", func(io.Reader) (io.Reader, error) { return nil, errors.New("LZO is not known here") }},
}

func lzmaReader(r io.Reader) (io.Reader, error) {
	return lzma.ReaderConfig{DictCap: 64 << 20}.NewReader(r)
}

// packed lists the places in b where packed data may begin, in order.
func packed(b []byte) []int {
	var places []int
	for _, m := range methods {
		for at := 0; len(places) < maxTries*len(methods); at++ {
			i := bytes.Index(b[at:], []byte(m.magic))
			if i < 0 {
				break
			}
			at += i
			places = append(places, at)
		}
	}
	slices.Sort(places)
	return places[:min(len(places), maxTries)]
}

// unpack unpacks the data at the beginning of b. The bytes behind the packed data are not looked
// at; so the unpacked data counts, even with an error.
func unpack(b []byte) (plain []byte, name string, err error) {
	for _, m := range methods {
		if !bytes.HasPrefix(b, []byte(m.magic)) {
			continue
		}
		r, err := m.open(bytes.NewReader(b))
		if err != nil {
			return nil, m.name, err
		}
		if c, ok := r.(*zstd.Decoder); ok {
			defer c.Close()
		}
		plain, err := io.ReadAll(io.LimitReader(r, maxImage))
		return plain, m.name, err
	}
	return nil, "", errors.New("not packed in a way that is known here")
}

// lz4 reads LZ4's legacy frame, which "lz4 -l" makes for kernels: a magic, then
// blocks of up to 8 MB, each with its length before it.
type lz4 struct {
	r     io.Reader
	begun bool
	plain []byte // of the block at hand, not yet read
	err   error
}

const (
	lz4Block  = 8 << 20
	lz4Packed = lz4Block + lz4Block/255 + 16 // the most that a block can grow to
)

var errLZ4 = errors.New("damaged LZ4 data")

func (z *lz4) Read(p []byte) (int, error) {
	for len(z.plain) == 0 {
		if z.err != nil {
			return 0, z.err
		}
		z.plain, z.err = z.block()
	}
	n := copy(p, z.plain)
	z.plain = z.plain[n:]
	return n, nil
}

// block reads one block. The length of the kernel follows the last one, four
// bytes that are no length of a block that follows.
func (z *lz4) block() ([]byte, error) {
	var word [4]byte
	if !z.begun {
		z.begun = true
		if _, err := io.ReadFull(z.r, word[:]); err != nil {
			return nil, err
		}
	}
	if _, err := io.ReadFull(z.r, word[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(word[:])
	if n == 0 || n > lz4Packed {
		return nil, io.EOF
	}
	b, err := io.ReadAll(io.LimitReader(z.r, int64(n)))
	if err != nil || len(b) < int(n) {
		return nil, errLZ4
	}
	return unlz4(b)
}

// unlz4 unpacks one block: sequences of a token, its high half a number of
// literals and its low half, but in the last one, of bytes to repeat less 4. Of
// either, 15 means that bytes follow to be added, up to one that is not 255.
func unlz4(b []byte) ([]byte, error) {
	out := make([]byte, 0, 4*len(b))
	length := func(n int) (int, bool) {
		for more := n == 15; more; {
			if len(b) == 0 || n > lz4Block {
				return 0, false
			}
			n += int(b[0])
			more = b[0] == 255
			b = b[1:]
		}
		return n, true
	}
	for len(b) > 0 {
		token := int(b[0])
		b = b[1:]
		literals, ok := length(token >> 4)
		if !ok || literals > len(b) || len(out)+literals > lz4Block {
			return nil, errLZ4
		}
		out = append(out, b[:literals]...)
		b = b[literals:]
		if len(b) == 0 {
			return out, nil
		}
		if len(b) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		repeat, ok := length(token & 15)
		repeat += 4
		if !ok || back == 0 || back > len(out) || len(out)+repeat > lz4Block {
			return nil, errLZ4
		}
		for from := len(out) - back; repeat > 0; { // the copy may overlap its source
			n := min(repeat, len(out)-from)
			out = append(out, out[from:from+n]...)
			repeat -= n
			from += n
		}
	}
	return nil, errLZ4
}
