package report

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A TensorBoard event file is a sequence of TFRecords. Each record is an Event message as tensorflow's
// event.proto defines it. Only the fields that scalars and texts need are written.

// A scalar is a named number.
type scalar struct {
	Tag   string
	Value float64
}

// A text is a named text in Markdown.
type text struct {
	Tag, Value string
}

// Field numbers of Event, Summary, Summary.Value, SummaryMetadata, its PluginData, and TensorProto.
const (
	eventWallTime    = 1 // double, seconds
	eventStep        = 2 // int64
	eventFileVersion = 3 // string
	eventSummary     = 5 // Summary
	summaryValue     = 1 // Value, repeated
	valueTag         = 1 // string
	valueSimple      = 2 // float
	valueTensor      = 8 // TensorProto
	valueMetadata    = 9 // SummaryMetadata
	metadataPlugin   = 1 // PluginData
	pluginName       = 1 // string
	tensorType       = 1 // DataType
	tensorShape      = 2 // TensorShapeProto; empty for a single value
	tensorString     = 8 // bytes, repeated
	typeString       = 7 // the DataType of texts
)

// appendWallTime appends the field with which every event begins.
func appendWallTime(b []byte, at time.Time) []byte {
	b = protowire.AppendTag(b, eventWallTime, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(float64(at.UnixNano())/1e9))
}

// versionEvent returns the first event of every file.
func versionEvent(at time.Time) []byte {
	b := appendWallTime(nil, at)
	b = protowire.AppendTag(b, eventFileVersion, protowire.BytesType)
	return protowire.AppendString(b, "brain.Event:2")
}

// event returns an event with the scalars and texts of one step.
func event(at time.Time, step int64, scalars []scalar, texts []text) []byte {
	var summary, value []byte
	for _, s := range scalars {
		value = appendText(value[:0], valueTag, s.Tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(s.Value)))
		summary = appendText(summary, summaryValue, string(value))
	}
	for _, t := range texts {
		tensor := protowire.AppendTag(nil, tensorType, protowire.VarintType)
		tensor = protowire.AppendVarint(tensor, typeString)
		tensor = appendText(tensor, tensorShape, "")
		tensor = appendText(tensor, tensorString, t.Value)
		value = appendText(value[:0], valueTag, t.Tag)
		value = appendText(value, valueTensor, string(tensor))
		plugin := appendText(nil, pluginName, "text")
		value = appendText(value, valueMetadata, string(appendText(nil, metadataPlugin, string(plugin))))
		summary = appendText(summary, summaryValue, string(value))
	}
	b := appendWallTime(nil, at)
	b = protowire.AppendTag(b, eventStep, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(step))
	return appendText(b, eventSummary, string(summary))
}

// appendText appends a field of text, bytes or a message.
func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of the TFRecord format: a CRC-32C, rotated and with a constant
// added. The format does so because a plain CRC of data that contains CRCs is weak.
func masked(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendRecord appends data as one TFRecord:
//
//	uint64 length, uint32 masked(length), data, uint32 masked(data)
//
// all little-endian.
func appendRecord(b, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b[at:at+8]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}
