package onnx

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Document returns an encoded ModelProto with a doc_string for the model and for
// its graph, about, and for each input and output, of by its name. The rest is as it
// was, byte for byte. It is an error if model is not a ModelProto with a graph.
func Document(model []byte, about string, of func(name string) string) ([]byte, error) {
	found := false
	out, err := rewrite(model, func(field protowire.Number, value []byte) ([]byte, error) {
		if field != 7 {
			return value, nil
		}
		found = true
		graph, err := rewrite(value, func(field protowire.Number, value []byte) ([]byte, error) {
			if field != 11 && field != 12 {
				return value, nil
			}
			name := ""
			_, err := rewrite(value, func(field protowire.Number, value []byte) ([]byte, error) {
				if field == 1 {
					name = string(value)
				}
				return value, nil
			})
			return appendString(value[:len(value):len(value)], 3, of(name)), err
		})
		return appendString(graph, 10, about), err
	})
	if err == nil && !found {
		err = errors.New("no graph")
	}
	if err != nil {
		return nil, fmt.Errorf("onnx: a model to document: %w", err)
	}
	return appendString(out, 6, about), nil
}

// rewrite copies a message. Fields of bytes become what f makes of them.
func rewrite(message []byte, f func(field protowire.Number, value []byte) ([]byte, error)) (out []byte, err error) {
	for len(message) > 0 {
		field, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(field, kind, message[tag:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if kind != protowire.BytesType {
			out = append(out, message[:tag+n]...)
		} else {
			value, _ := protowire.ConsumeBytes(message[tag:])
			if value, err = f(field, value); err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(append(out, message[:tag]...), value)
		}
		message = message[tag+n:]
	}
	return out, nil
}
