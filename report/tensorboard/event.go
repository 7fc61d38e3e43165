// Package tensorboard copies the numbers of a run's metrics.jsonl into event files,
// which TensorBoard reads.
//
// An event file is a sequence of TFRecords. Each record is an Event message as
// tensorflow's event.proto defines it. This package writes only the fields that
// scalars need.
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

// Field numbers of Event, Summary and Summary.Value.
const (
	eventWallTime    = 1 // double, seconds
	eventStep        = 2 // int64
	eventFileVersion = 3 // string
	eventSummary     = 5 // Summary
	summaryValue     = 1 // Value, repeated
	valueTag         = 1 // string
	valueSimple      = 2 // float
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

// scalarEvent returns an event with the scalars of one step.
func scalarEvent(at time.Time, step int64, scalars []Scalar) []byte {
	var summary, value []byte
	for _, s := range scalars {
		value = protowire.AppendTag(value[:0], valueTag, protowire.BytesType)
		value = protowire.AppendString(value, s.Tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(s.Value)))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	b := appendWallTime(nil, at)
	b = protowire.AppendTag(b, eventStep, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(step))
	b = protowire.AppendTag(b, eventSummary, protowire.BytesType)
	return protowire.AppendBytes(b, summary)
}
