package models

// WithDType returns the config.json that Save writes for a type.
var WithDType = withDType
