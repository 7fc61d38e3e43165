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

// Apart returns an encoded ModelProto whose nodes write over nothing that they read. of
// is the input over which each output is written. A node that makes an output and reads
// that input gets a copy of it: two signs, which ONNX Runtime does not leave out.
func Apart(model []byte, of map[string]string) ([]byte, error) {
	return rewrite(model, func(field protowire.Number, graph []byte) ([]byte, error) {
		if field != 7 {
			return graph, nil
		}
		var copies []byte
		copied := map[string]bool{}
		nodes, err := rewrite(graph, func(field protowire.Number, node []byte) ([]byte, error) {
			if field != 1 {
				return node, nil
			}
			over := map[string]bool{}
			_, err := rewrite(node, func(field protowire.Number, value []byte) ([]byte, error) {
				if in := of[string(value)]; field == 2 && in != "" {
					over[in] = true
				}
				return value, nil
			})
			if err != nil || len(over) == 0 {
				return node, err
			}
			return rewrite(node, func(field protowire.Number, value []byte) ([]byte, error) {
				in := string(value)
				if field != 1 || !over[in] {
					return value, nil
				}
				if !copied[in] {
					copied[in] = true
					copies = appendMessage(copies, 1, Node{Op: "Neg", Inputs: []string{in}, Outputs: []string{in + ".minus"}}.append)
					copies = appendMessage(copies, 1, Node{Op: "Neg", Inputs: []string{in + ".minus"}, Outputs: []string{in + ".copy"}}.append)
				}
				return []byte(in + ".copy"), nil
			})
		})
		return append(copies, nodes...), err // copies are first, as they read inputs alone
	})
}

// Repeat returns an encoded ModelProto of n copies of a graph: what copy i makes or takes
// has the name that of gives it, and constants are the same for all. around is the rest:
// the new graph's name, inputs, outputs, further constants, and nodes before the copies;
// after are the nodes behind them.
func Repeat(model []byte, n int, of func(i int, name string) string, around Graph, after []Node) ([]byte, error) {
	return rewrite(model, func(field protowire.Number, graph []byte) ([]byte, error) {
		if field != 7 {
			return graph, nil
		}
		out, constants := around.append(nil), map[string]bool{"": true} // no name is an input that is left out
		each := func(of protowire.Number, f func(message []byte) error) error {
			_, err := rewrite(graph, func(field protowire.Number, message []byte) ([]byte, error) {
				if field != of {
					return message, nil
				}
				return message, f(message)
			})
			return err
		}
		err := each(5, func(tensor []byte) error {
			out = protowire.AppendBytes(protowire.AppendTag(out, 5, protowire.BytesType), tensor)
			_, err := rewrite(tensor, func(field protowire.Number, value []byte) ([]byte, error) {
				if field == 8 {
					constants[string(value)] = true
				}
				return value, nil
			})
			return err
		})
		for i := 0; i < n && err == nil; i++ {
			err = each(1, func(node []byte) error {
				node, err := rewrite(node, func(field protowire.Number, value []byte) ([]byte, error) {
					if field > 3 || constants[string(value)] { // inputs, outputs and the node's name
						return value, nil
					}
					return []byte(of(i, string(value))), nil
				})
				out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), node)
				return err
			})
		}
		for _, node := range after {
			out = appendMessage(out, 1, node.append)
		}
		return out, err
	})
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
