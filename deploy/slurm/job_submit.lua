-- Holds new GPU jobs, and phases of pipelines, for Headroom: see docs/how-to/turn-on-beside-slurm.md.
--
-- It runs under slurmctld's locks, so it looks at what it is given, and at two small files in memory:
-- it adds a line to one, which wakes the bridge, and reads one where WHEN_AWAY is "open". It sets the
-- hold, and the mark that says whose it is. Slurm needs JobSubmitPlugins=lua, and this file beside
-- slurm.conf.

-- "closed": while Headroom is away new jobs wait for it. "open": they start as if it were not there.
local WHEN_AWAY = "closed"
-- The folder that `headroom slurm` is given with --run-dir.
local RUN_DIR = "/run/headroom-slurm"
-- Partitions whose jobs are never held.
local EXEMPT = { }

local HOLD = "[headroom hold]"
local BY_OWNER = "[headroom hold owner]"

-- The uid that slurmctld, and so this, runs as: SlurmUser, as whom the bridge runs. Asked once.
local function own_uid()
   local file = io.open("/proc/self/status", "r")
   local found = file ~= nil and string.match(file:read("*a"), "Uid:%s+(%d+)")
   if file ~= nil then
      file:close()
   end
   return tonumber(found or 0)
end

-- Only these lift a hold of ours.
local ADMINS = { [0] = true, [own_uid()] = true }

local function starts_with(text, head)
   return text ~= nil and string.sub((string.gsub(text, '^"', "")), 1, #head) == head
end

local function asks_for_gpus(job)
   for _, name in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
      local asked = job[name]
      if asked ~= nil and string.find(asked, "gpu", 1, true) then
         return true
      end
   end
   return false
end

-- Its owner says so in words of ours: docs/reference/schedulers.md#words.
local function is_phase(job)
   return string.find(string.lower(job.comment or ""), "headroom:.*pipeline=") ~= nil
end

local function is_exempt(partition)
   for name in string.gmatch(partition or "", "[^,]+") do
      if EXEMPT[name] then
         return true
      end
   end
   return false
end

local function holds_now()
   if WHEN_AWAY ~= "open" then
      return true
   end
   local file = io.open(RUN_DIR .. "/until", "r")
   if file == nil then
      return false
   end
   local until_s = tonumber(file:read("*l") or "")
   file:close()
   return until_s ~= nil and os.time() < until_s
end

-- The bridge looks at a file's size: there is nobody to wait for, and nothing that could fill up.
local function wake_bridge()
   local file = io.open(RUN_DIR .. "/news", "a")
   if file ~= nil then
      file:write("1\n")
      file:close()
   end
end

function slurm_job_submit(job, partitions, uid)
   local is_ours = asks_for_gpus(job) or is_phase(job)
   if not is_ours or is_exempt(job.partition) or not holds_now() then
      return slurm.SUCCESS
   end
   if job.priority == 0 then
      job.admin_comment = BY_OWNER .. " its owner holds it"
   else
      job.priority = 0
      job.admin_comment = HOLD .. " waits for its first look"
   end
   wake_bridge()
   return slurm.SUCCESS
end

-- Whoever is no administrator cannot write AdminComment, nor can we for them: what owners want is
-- told to the bridge in the comment, and it takes that out again.
local function tell(job, known, word)
   job.comment = (string.gsub(known.comment or "", " ?%[headroom: owner %a+%]", "")) .. word
   wake_bridge()
end

function slurm_job_modify(job, known, partitions, uid)
   local is_both = starts_with(known.admin_comment, BY_OWNER)
   local is_ours = is_both or starts_with(known.admin_comment, HOLD)
   if ADMINS[uid] or not is_ours or known.priority ~= 0 or job.priority == slurm.NO_VAL then
      return slurm.SUCCESS
   end
   if job.priority == 0 then
      tell(job, known, " [headroom: owner holds]")
   else
      -- The owner's own hold is lifted, and ours stays.
      job.priority = 0
      tell(job, known, " [headroom: owner releases]")
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
