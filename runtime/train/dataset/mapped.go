package dataset

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// mappedMessages is the ipc.MessageReader of a mapped stream: the bodies of
// its messages are parts of the mapping, where the library's own reader would
// copy each whole.
type mappedMessages struct {
	data []byte
	at   int
}

func (m *mappedMessages) Retain()  {}
func (m *mappedMessages) Release() {}

// Message returns the next message: four bytes FF (absent before format
// version 0.15), the length of its metadata, the metadata, the body. A length
// of 0 or the end of the data is the end.
func (m *mappedMessages) Message() (msg *ipc.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			msg, err = nil, fmt.Errorf("the metadata of the message at byte %d is damaged: %v", m.at, p)
		}
	}()
	if m.at == len(m.data) {
		return nil, io.EOF
	}
	length, err := m.uint32()
	if err == nil && length == 0xffffffff {
		length, err = m.uint32()
	}
	if err != nil {
		return nil, err
	}
	if length == 0 {
		return nil, io.EOF
	}
	meta, err := m.take(int64(length))
	if err != nil {
		return nil, err
	}
	head := ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(nil))
	body, err := m.take(head.BodyLen())
	if err != nil {
		return nil, err
	}
	return ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(body)), nil
}

func (m *mappedMessages) uint32() (uint32, error) {
	b, err := m.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (m *mappedMessages) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(m.data)-m.at) {
		return nil, fmt.Errorf("the file is cut short: %d bytes are wanted at byte %d and %d are left", n, m.at, len(m.data)-m.at)
	}
	b := m.data[m.at : m.at+int(n) : m.at+int(n)]
	m.at += int(n)
	return b, nil
}
