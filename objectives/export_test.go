package objectives

// AdvantageRules returns the names of the rules of advantages.
var AdvantageRules = advantageRules
