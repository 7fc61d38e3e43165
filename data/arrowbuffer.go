package data

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The codecs of compressed buffers, as the metadata numbers them.
const (
	notCompressed = -1
	lz4Frame      = 0
	zstdFrame     = 1
)

// An arrowBuffer reads one buffer of a record batch from its beginning to its
// end, so that memory holds a window of it and not the buffer. It is used again
// for the next batch.
type arrowBuffer struct {
	raw  section // the buffer in the file
	r    *bufio.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// bufferWindow is the memory that a buffer takes; a column has up to three.
const bufferWindow = 1 << 15

// A section reads bytes at to end of f.
type section struct {
	f       io.ReaderAt
	at, end int64
}

func (s *section) Read(p []byte) (int, error) {
	if s.at >= s.end {
		return 0, io.EOF
	}
	if left := s.end - s.at; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := s.f.ReadAt(p, s.at)
	s.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// reset begins the buffer of length bytes at at. A compressed one begins with
// its real length, or -1 if it was left as it is.
func (b *arrowBuffer) reset(f io.ReaderAt, at, length int64, codec int) {
	b.raw = section{f, at, at + length}
	if b.r == nil {
		b.r = bufio.NewReaderSize(nil, bufferWindow)
	}
	if codec == notCompressed || length == 0 {
		b.r.Reset(&b.raw)
		return
	}
	var head [8]byte
	if _, err := io.ReadFull(&b.raw, head[:]); err != nil {
		damaged("a compressed buffer of %d bytes: %v", length, err)
	}
	if int64(binary.LittleEndian.Uint64(head[:])) == -1 {
		b.r.Reset(&b.raw)
		return
	}
	switch codec {
	case lz4Frame:
		if b.lz4 == nil {
			b.lz4 = lz4.NewReader(nil)
		}
		b.lz4.Reset(&b.raw)
		b.r.Reset(b.lz4)
	case zstdFrame:
		if b.zstd == nil {
			// One goroutine's worth, and windows of at most 64 MiB.
			b.zstd, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
		}
		if err := b.zstd.Reset(&b.raw); err != nil {
			damaged("a compressed buffer: %v", err)
		}
		b.r.Reset(b.zstd)
	default:
		damaged("buffers are compressed in an unknown way (%d)", codec)
	}
}

func (b *arrowBuffer) close() {
	if b.zstd != nil {
		b.zstd.Close()
	}
}

// take returns the next n bytes, at most bufferWindow; they are good until the
// next call.
func (b *arrowBuffer) take(n int) []byte {
	p, err := b.r.Peek(n)
	if err != nil {
		damaged("a buffer ends too early: %v", err)
	}
	b.r.Discard(n)
	return p
}

// copy returns a copy of the next n bytes. What it allocates grows with what
// is really there, not with n.
func (b *arrowBuffer) copy(n int64) []byte {
	if n <= bufferWindow {
		return bytes.Clone(b.take(int(n)))
	}
	if n > maxLine {
		damaged("a value of %d bytes; at most %d MiB are read", n, maxLine>>20)
	}
	var all bytes.Buffer
	if _, err := io.CopyN(&all, b.r, n); err != nil {
		damaged("a buffer ends too early: %v", err)
	}
	return all.Bytes()
}

func (b *arrowBuffer) skip(n int64) {
	if _, err := io.CopyN(io.Discard, b.r, n); err != nil {
		damaged("a buffer ends too early: %v", err)
	}
}

// arrowBits reads a buffer bit by bit, the lowest of each byte first.
type arrowBits struct {
	arrowBuffer
	all  bool // there is no buffer: every bit is set
	left int
	byte byte
}

func (b *arrowBits) next() bool {
	if b.all {
		return true
	}
	if b.left == 0 {
		b.byte, b.left = b.take(1)[0], 8
	}
	set := b.byte&1 == 1
	b.byte >>= 1
	b.left--
	return set
}
