package webgpu

import "onering/runtime/provision"

// version is the newest ONNX Runtime on pip with the WebGPU provider.
const (
	version = "1.27.0"
	ref     = "onnxruntime-webgpu==" + version
)

// pluginRef is the package of the provider's separate library, for ONNX Runtime 1.24.4 or
// newer.
const pluginRef = "onnxruntime-ep-webgpu==0.4.0"

var builtIn, besideCPU = provision.Wheels(ref, version, wheels), provision.WheelsBeside(pluginWheels)

var wheels = map[string]provision.Build{
	"linux/amd64": {Platform: "manylinux_2_28_x86_64", Variant: "webgpu", Member: "onnxruntime/capi/libonnxruntime.so.1.27.0", Size: 25163729,
		Sum: "882f54a76dde1b6c7e66ed353f29bf167c2a2d4e77875b093205074b31d2c7f4"},
	"darwin/arm64": {Platform: "macosx_14_0_arm64", Variant: "webgpu", Member: "onnxruntime/capi/libonnxruntime.1.27.0.dylib", Size: 24081620,
		Sum: "3d760e1d78599e10a8f608b64ef9e6e39b78ab61e5e3cf88d5ec98f11809c9a7"},
	"windows/amd64": {Platform: "win_amd64", Variant: "webgpu", Member: "onnxruntime/capi/onnxruntime.dll", Size: 27226899,
		Sum: "a2cb98408f9a10f8976c0ec4d933b8732c021e9edef348ef7d87a62d05cdd1bc",
		Beside: []provision.Part{
			{Member: "onnxruntime/capi/dxcompiler.dll", Sum: "450adfba61a72ec3f8feaec38caa371692974b91ca20470a675214d30b7bf387"},
			{Member: "onnxruntime/capi/dxil.dll", Sum: "51326f698ac24e45d1d2f125868c66252b0c1c47b79b1427655c9ea50cfd4869"},
		}},
}

// pluginWheels are the libraries for the CPU with the provider beside them.
var pluginWheels = map[string]provision.Build{
	"linux/amd64":  plugged(6892120, "libonnxruntime_providers_webgpu.so", "9f76e3dc4459421958ad086a9da03bf7e5de9289e9a3a56e28bbb459773dec81"),
	"linux/arm64":  plugged(6096222, "libonnxruntime_providers_webgpu.so", "720e1288e7e465f924db44b88a98a9d1c543eba3fbb2ff801cf2545f5e7f0279"),
	"darwin/arm64": plugged(5200679, "libonnxruntime_providers_webgpu.dylib", "894aa43c308c97afe58f6485b8411962181a39b27170f5f210cc7503adb52850"),
	"windows/amd64": plugged(13149847, "onnxruntime_providers_webgpu.dll", "85d7b2065b1968b846cd00d5d87d5286d3c44e8f6c557cd382d96300e524b6cb",
		"dxcompiler.dll", "d7e740883f8048233d15752bc5d4ba207fc03d835c78fffab26387d400892193",
		"dxil.dll", "0a0d059a51dd5e1916a4a9924817d70b5dbb8e0c103a102fa2c6c92cb748c27f"),
	"windows/arm64": plugged(14194630, "onnxruntime_providers_webgpu.dll", "e2a72894617c0519cae3080534ca1fc957c4ab607a993c05f326d83b322a581d",
		"dxcompiler.dll", "2c4895ad9707963390fba270a613cd37a038064fce5384bae025c695dc681601",
		"dxil.dll", "502a7c6b7660fa5520efbe5b9516a1aac06b9a8c6a7e26011856bead7f5770ed"),
}

// plugged lists files of the plug-in's package, which has so many bytes, by names and SHA-256.
func plugged(size int64, files ...string) provision.Build {
	w := provision.Build{Variant: "webgpu-plugin", Size: size}
	for i := 0; i < len(files); i += 2 {
		w.Beside = append(w.Beside, provision.Part{Member: "onnxruntime_ep_webgpu/" + files[i], Sum: files[i+1], Ref: pluginRef})
	}
	return w
}
