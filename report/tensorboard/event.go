// Package tensorboard copies the numbers of a run's metrics.jsonl, and some of its
// responses, into event files, which TensorBoard reads.
//
// An event file is a sequence of TFRecords. Each record is an Event message as
// tensorflow's event.proto defines it. This package writes only the fields that
// scalars and texts need.
package tensorboard

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Scalar is a named number.
type Scalar struct {
	Tag   string
	Value float64
}

// A Text is a named text in Markdown.
type Text struct {
	Tag, Value string
}

// Field numbers of Event, Summary, Summary.Value, SummaryMetadata, its PluginData, and
// TensorProto.
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

// appendWallTime appends the field that every event begins with.
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
func event(at time.Time, step int64, scalars []Scalar, texts []Text) []byte {
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
