-- What a campaign takes note of besides: each claim, publication and orphan, in the transaction of what it tells.
CREATE FUNCTION finaz_drill.on_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO finaz_drill.history (what, lease, owner, epoch, fence, detail)
    SELECT 'claimed', l.name, l.owner, l.epoch, NEW.fence, NEW.run_id
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.lease_no = NEW.lease_no;
    RETURN NULL;
END $$;
CREATE TRIGGER drill AFTER UPDATE ON finaz.api_runs FOR EACH ROW
    WHEN (NEW.state = 'RUNNING' AND OLD.state <> 'RUNNING') EXECUTE FUNCTION finaz_drill.on_run();

CREATE FUNCTION finaz_drill.on_publication() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO finaz_drill.history (what, lease, owner, epoch, fence, detail)
    SELECT 'published', l.name, l.owner, NEW.epoch, NEW.fence, NEW.run_id || ' sha256:' || encode(NEW.values_hash, 'hex')
    FROM finaz.api_runs AS r LEFT JOIN finaz.leases AS l ON l.lease_no = r.lease_no WHERE r.run_no = NEW.run_no;
    RETURN NULL;
END $$;
CREATE TRIGGER drill AFTER INSERT ON finaz.publications FOR EACH ROW EXECUTE FUNCTION finaz_drill.on_publication();

CREATE FUNCTION finaz_drill.on_orphan() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO finaz_drill.history (what, owner, fence, detail)
    SELECT 'orphan', NEW.owner, NEW.fence, r.run_id FROM finaz.api_runs AS r WHERE r.run_no = NEW.run_no;
    RETURN NULL;
END $$;
CREATE TRIGGER drill AFTER INSERT ON finaz.run_history FOR EACH ROW
    WHEN (NEW.what LIKE 'orphan%' OR NEW.what LIKE 'failed: poison%') EXECUTE FUNCTION finaz_drill.on_orphan();
