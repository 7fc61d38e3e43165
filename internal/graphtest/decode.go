package graphtest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"onering/models/onnx"
)

// Decode reads a ModelProto as onnx.Model.Encode writes it. A field that
// onnx.Model cannot hold is an error, since leaving it out could change what
// the graph means. Raw data are views of b. Sizes are checked; names and the
// order of the nodes are not.
func Decode(b []byte) (onnx.Model, error) {
	var m onnx.Model
	version := int64(-1)
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			return f.int(&version)
		case 2:
			return f.string(&m.Producer)
		case 7:
			return message(f, decodeGraph, &m.Graph)
		case 8:
			return add(f, decodeOpset, &m.Opsets)
		}
		return f.unknown("ModelProto")
	})
	if err == nil && version != onnx.IRVersion {
		err = fmt.Errorf("IR version %d, want %d", version, onnx.IRVersion)
	}
	if err != nil {
		return onnx.Model{}, fmt.Errorf("onnx: %w", err)
	}
	return m, nil
}

func decodeOpset(b []byte, o *onnx.Opset) error {
	return fields(b, func(f field) error {
		switch f.number {
		case 1:
			return f.string(&o.Domain)
		case 2:
			return f.int(&o.Version)
		}
		return f.unknown("OperatorSetIdProto")
	})
}

func decodeGraph(b []byte, g *onnx.Graph) error {
	return fields(b, func(f field) error {
		switch f.number {
		case 1:
			return add(f, decodeNode, &g.Nodes)
		case 2:
			return f.string(&g.Name)
		case 5:
			return add(f, decodeTensor, &g.Initializers)
		case 11:
			return add(f, decodeValueInfo, &g.Inputs)
		case 12:
			return add(f, decodeValueInfo, &g.Outputs)
		}
		return f.unknown("GraphProto")
	})
}

func decodeNode(b []byte, n *onnx.Node) error {
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			return f.strings(&n.Inputs)
		case 2:
			return f.strings(&n.Outputs)
		case 3:
			return f.string(&n.Name)
		case 4:
			return f.string(&n.Op)
		case 5:
			return add(f, decodeAttr, &n.Attrs)
		case 7:
			return f.string(&n.Domain)
		}
		return f.unknown("NodeProto")
	})
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	return nil
}

// decodeAttr reads an AttributeProto. A zero value may be absent, so the type says
// which field counts; a value of another type than that is an error.
func decodeAttr(b []byte, a *onnx.Attr) error {
	var (
		kind    int64
		present [21]bool // by field number
		f32     float32
		i64     int64
		str     string
		floats  []float32
		ints    []int64
	)
	err := fields(b, func(f field) error {
		if f.number < protowire.Number(len(present)) {
			present[f.number] = true
		}
		switch f.number {
		case 1:
			return f.string(&a.Name)
		case 2:
			return f.float(&f32)
		case 3:
			return f.int(&i64)
		case 4:
			return f.string(&str)
		case 7:
			return f.floats(&floats)
		case 8:
			return f.ints(&ints)
		case 20:
			return f.int(&kind)
		}
		return f.unknown("AttributeProto")
	})
	value := protowire.Number(0)
	switch kind {
	case 1:
		a.Value, value = f32, 2
	case 2:
		a.Value, value = i64, 3
	case 3:
		a.Value, value = str, 4
	case 6:
		a.Value, value = floats, 7
	case 7:
		a.Value, value = ints, 8
	default:
		err = errors.Join(err, fmt.Errorf("type %d is not supported", kind))
	}
	for n := protowire.Number(2); n <= 8; n++ {
		if err == nil && n != value && present[n] {
			err = fmt.Errorf("field %d does not belong to type %d", n, kind)
		}
	}
	if err != nil {
		return fmt.Errorf("attribute %q: %w", a.Name, err)
	}
	return nil
}

func decodeTensor(b []byte, t *onnx.Tensor) error {
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			return f.ints(&t.Dims)
		case 2:
			var v int64
			err := f.int(&v)
			t.Type = onnx.ElemType(v)
			return err
		case 8:
			return f.string(&t.Name)
		case 9:
			return f.bytes(&t.Raw)
		}
		return f.unknown("TensorProto")
	})
	if err == nil {
		err = checkSize(t)
	}
	if err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// checkSize compares the length of the data with the dims.
func checkSize(t *onnx.Tensor) error {
	size := int64(t.Type.Size())
	if size == 0 {
		return fmt.Errorf("element type %s is not supported", t.Type)
	}
	if slices.Contains(t.Dims, 0) {
		size = 0
	}
	for _, d := range t.Dims {
		if d < 0 || size > 0 && d > math.MaxInt64/size {
			return fmt.Errorf("dims %v are not sizes", t.Dims)
		}
		size *= d
	}
	if size != int64(len(t.Raw)) {
		return fmt.Errorf("%d bytes for dims %v of element type %s, which need %d", len(t.Raw), t.Dims, t.Type, size)
	}
	return nil
}

// decodeValueInfo reads ValueInfoProto > TypeProto > Tensor > TensorShapeProto.
func decodeValueInfo(b []byte, v *onnx.ValueInfo) error {
	shape := func(f field) error {
		if f.number != 1 {
			return f.unknown("TensorShapeProto")
		}
		return add(f, decodeDim, &v.Dims)
	}
	tensor := func(f field) error {
		switch f.number {
		case 1:
			var e int64
			err := f.int(&e)
			v.Type = onnx.ElemType(e)
			return err
		case 2:
			return f.fields(shape)
		}
		return f.unknown("TypeProto.Tensor")
	}
	kind := func(f field) error {
		if f.number != 1 {
			return f.unknown("TypeProto")
		}
		return f.fields(tensor)
	}
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			return f.string(&v.Name)
		case 2:
			return f.fields(kind)
		}
		return f.unknown("ValueInfoProto")
	})
	if err == nil && v.Type.Size() == 0 {
		err = fmt.Errorf("element type %s is not supported", v.Type)
	}
	if err != nil {
		return fmt.Errorf("value %q: %w", v.Name, err)
	}
	return nil
}

func decodeDim(b []byte, d *onnx.Dim) error {
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			d.Param = ""
			return f.int(&d.Value)
		case 2:
			d.Value = 0
			return f.string(&d.Param)
		}
		return f.unknown("TensorShapeProto.Dimension")
	})
	if err == nil && d.Value < 0 {
		err = fmt.Errorf("size %d", d.Value)
	}
	return err
}

// A field is one field of a message, before its value is read.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // the encoded value, without its tag
}

// fields calls f for each field of a message.
func fields(b []byte, f func(field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return fmt.Errorf("field %d: %w", number, protowire.ParseError(n))
		}
		if err := f(field{number, kind, b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (f field) unknown(message string) error {
	return fmt.Errorf("field %d of %s is not supported", f.number, message)
}

func (f field) is(kind protowire.Type) error {
	if f.kind != kind {
		return fmt.Errorf("field %d has wire type %d, want %d", f.number, f.kind, kind)
	}
	return nil
}

func (f field) int(to *int64) error {
	v, _ := protowire.ConsumeVarint(f.value)
	*to = int64(v)
	return f.is(protowire.VarintType)
}

func (f field) float(to *float32) error {
	if err := f.is(protowire.Fixed32Type); err != nil {
		return err
	}
	v, _ := protowire.ConsumeFixed32(f.value)
	*to = math.Float32frombits(v)
	return nil
}

func (f field) bytes(to *[]byte) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	*to, _ = protowire.ConsumeBytes(f.value)
	return nil
}

func (f field) string(to *string) error {
	var b []byte
	err := f.bytes(&b)
	*to = string(b)
	return err
}

func (f field) strings(to *[]string) error {
	var s string
	err := f.string(&s)
	*to = append(*to, s)
	return err
}

// fields calls each for the fields of the message that f holds.
func (f field) fields(each func(field) error) error {
	var b []byte
	if err := f.bytes(&b); err != nil {
		return err
	}
	return fields(b, each)
}

// message reads the message that f holds.
func message[T any](f field, decode func([]byte, *T) error, to *T) error {
	var b []byte
	if err := f.bytes(&b); err != nil {
		return err
	}
	return decode(b, to)
}

// add reads the message that f holds as one more element.
func add[T any](f field, decode func([]byte, *T) error, to *[]T) error {
	var v T
	err := message(f, decode, &v)
	*to = append(*to, v)
	return err
}

// ints appends a repeated field, which may be packed.
func (f field) ints(to *[]int64) error {
	if f.kind != protowire.BytesType {
		var v int64
		err := f.int(&v)
		*to = append(*to, v)
		return err
	}
	packed, _ := protowire.ConsumeBytes(f.value)
	for len(packed) > 0 {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return fmt.Errorf("field %d: %w", f.number, protowire.ParseError(n))
		}
		*to = append(*to, int64(v))
		packed = packed[n:]
	}
	return nil
}

// floats appends a repeated field, which may be packed.
func (f field) floats(to *[]float32) error {
	if f.kind != protowire.BytesType {
		var v float32
		err := f.float(&v)
		*to = append(*to, v)
		return err
	}
	packed, _ := protowire.ConsumeBytes(f.value)
	if len(packed)%4 != 0 {
		return fmt.Errorf("field %d: %d bytes are not floats", f.number, len(packed))
	}
	for ; len(packed) > 0; packed = packed[4:] {
		v, _ := protowire.ConsumeFixed32(packed)
		*to = append(*to, math.Float32frombits(v))
	}
	return nil
}
